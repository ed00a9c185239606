"""The Cockpit page in a browser, with a stub of Cockpit that answers with recorded output.

The output is hbatune's own, on a described machine.
"""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from tests.hosts import machines
from tests.hosts.cockpit_host import PAGE, Answers, record, server
from tests.hosts.tree import Described, build
from tests.page_session import PageSession, open_browser

pytestmark = pytest.mark.programs

STUB = Path(__file__).parent / "cockpit_stub.js"
POLICY = (
    "default-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'self'; "
    "object-src 'none'; font-src 'self' data:; img-src 'self' data:"
)
"""Cockpit's own policy (cockpit(1), manifest.json: content-security-policy)."""

FONTS = ("static/fonts/RedHatText-Regular.woff2", "static/fonts/RedHatText-Bold.woff2")
DIFF = "diff --profile oltp --json"
APPLY = "apply --profile oltp --json"
LOOKS = ("status --json", "profiles --json", DIFF)
COMMANDS = (
    *(*LOOKS, "apply --profile oltp --dry-run --json", APPLY),
    *(*LOOKS, "rollback --dry-run --json", "rollback --json", *LOOKS),
)
"""A machine that is not set up, then tuned, then rolled back."""
WATCH = "watch --json --count 1 --interval 0.1"

REFUSED = "hbatune: it would take 9 GiB of memory\n         allow more with memory_limit\n"


class _Handler(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class Site:
    """The page with a stub of Cockpit, on a web server."""

    def __init__(self, folder: Path, page: PageSession) -> None:
        self._folder, self.page = folder, page
        copytree(PAGE, folder / "hbatune")
        (folder / "base1").mkdir()
        # Files that Cockpit has. The browser does without them, but not without an answer.
        (folder / "static/fonts").mkdir(parents=True)
        for name in ("favicon.ico", *FONTS):
            (folder / name).touch()
        self._web = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, directory=str(folder)))
        threading.Thread(target=self._web.serve_forever).start()

    def close(self) -> None:
        self._web.shutdown()
        self._web.server_close()

    def show(
        self, answers: Answers, width: int = 1400, *, allowed: bool = True, dark: bool = False
    ) -> PageSession:
        """Open the page with these answers, and wait until it has shown them."""
        text = f"const ANSWERS = {json.dumps(answers)};\nconst ALLOWED = {json.dumps(allowed)};\n"
        (self._folder / "base1/cockpit.js").write_text(text + STUB.read_text())
        url = f"http://127.0.0.1:{self._web.server_port}/hbatune/index.html"
        self.page.open(url, width, dark=dark)
        self.page.wait_for("document.getElementById('plan-content').innerText !== ''")
        return self.page

    def calls(self) -> list[list[str]]:
        """The commands that the page has run, each with its way to become root."""
        calls: list[list[str]] = self.page.evaluate("cockpit.calls")
        return calls


def record_answers(folder: Path, machine: Described, commands: Sequence[str]) -> Answers:
    """Return the answers of a machine to these commands in order, and a reading of its disks."""
    build(machine, folder)
    (folder / "proc/diskstats").write_text("")
    answers = record(folder, [command.split() for command in (WATCH, *commands)])
    answers["watch --json"] = [[None, answers.pop(WATCH)[0][1]]]
    return answers


@pytest.fixture(scope="module")
def recorded(_namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return record_answers(tmp_path_factory.mktemp("machine"), server(), COMMANDS)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_browser(tmp_path_factory.mktemp("browser")) as page:
        new_site = Site(tmp_path_factory.mktemp("site"), page)
        try:
            yield new_site
        finally:
            new_site.close()


@pytest.fixture(autouse=True)
def _no_problems(site: Site) -> Iterator[None]:
    yield
    assert site.page.problems == [], "errors of scripts, or of the policy"


def choose_profile(page: PageSession) -> None:
    """Choose oltp with the keyboard, and wait for its plan."""
    page.tab_to("#profile")
    page.press(*"oltp")
    page.wait_for("document.querySelectorAll('#plan-content tbody tr').length > 0")


def wait_for_state(page: PageSession, headline: str) -> None:
    """Wait until the page shows this headline and takes the next change."""
    page.wait_for(f"document.getElementById('headline').innerText.includes({json.dumps(headline)})")
    page.wait_for("!document.getElementById('apply').disabled")


def test_page_shows_status_disks_and_plan(site: Site, recorded: Answers) -> None:
    page = site.show(recorded)
    headline = page.get_text("#headline")
    assert "is not set up" in headline
    assert page.evaluate("document.getElementById('status').dataset.tone") == "off"
    status = page.get_text("#status-content")
    assert "Broadcom eHBA 9600-24i, 12 disks" in status
    assert "sudo hbatune apply --profile oltp" in status
    page.wait_for("document.querySelectorAll('#disks tbody tr').length === 8")
    disks = page.get_text("#disks")
    assert disks.index("sdl") < disks.index("sdk"), "the slowest is first"
    [slowest] = re.findall(r"^sdl\t.*$", disks, re.MULTILINE)
    assert "6.75" in slowest, "its p99 in ms"
    assert "and 4 disks more" in disks
    assert "Choose what this host is for" in page.get_text("#plan-content")
    assert page.evaluate("document.getElementById('apply').disabled"), "no profile is chosen"
    choose_profile(page)
    plan = page.get_text("#plan-content")
    assert "20 as wanted, 24 to change, 1 absent." in plan
    assert "sdb sde sdh sdk\tqueue_depth\t32\t64\tto change" in plan
    assert "SSDs behind a SAS adapter" in plan


def test_keyboard_alone_applies_and_rolls_back(site: Site, recorded: Answers) -> None:
    page = site.show(recorded)
    choose_profile(page)
    page.tab_to("#apply")
    page.press("Enter")
    page.wait_for("document.getElementById('confirmation').open")
    assert "24 settings will be set" in page.get_text("#confirmation")
    assert "sda sdd sdg sdj\tqueue_depth\t100\t128" in page.get_text("#confirmation")
    page.press("Escape")
    page.wait_for("document.activeElement.id === 'apply'")
    assert not any(superuser == "require" for _, superuser in site.calls())

    page.press("Enter")
    page.wait_for("document.getElementById('confirmation').open")
    page.tab_to("#confirm")
    page.press("Enter")
    wait_for_state(page, "is tuned until the next boot")
    assert site.calls().count([APPLY, "require"]) == 1
    result = page.get_text("#apply-result")
    assert "Applied oltp: 20 kept, 24 written" in result
    assert "sdc\tnr_requests\timproved" in result
    assert re.search(r"\n\+(9[6-9]|10[0-4]) %\n", result), "twice the IOPS"
    assert "Each limit is 99 % sure." in result
    assert "sdb\tqueue_depth, nr_requests, rq_affinity\tunchanged" in result
    assert "Latest verdicts" in page.get_text("#status-content")
    assert "44 as wanted, 1 absent." in page.get_text("#plan-content")
    assert page.get_text("#undo-content") == "32 original values recorded."

    page.tab_to("#rollback")
    page.press("Enter")
    page.wait_for("document.getElementById('confirmation').open")
    assert "24 values will be restored" in page.get_text("#confirmation")
    assert "sdb sde sdh sdk\tqueue_depth\t64\t32" in page.get_text("#confirmation")
    assert page.evaluate("document.activeElement.innerText") == "Cancel", "no default to roll back"
    page.tab_to("#confirm")
    page.press("Enter")
    wait_for_state(page, "was rolled back")
    assert site.calls().count(["rollback --json", "require"]) == 1
    assert "Rolled back: 24 written, 8 kept" in page.get_text("#rollback-result")


def test_running_command_shows_its_messages(site: Site, recorded: Answers) -> None:
    [[_, output]] = recorded[APPLY]
    start = str(output).index("{\n")
    page = site.show({**recorded, APPLY: [[None, str(output)[:start]]]})
    choose_profile(page)
    page.tab_to("#apply")
    page.press("Enter")
    page.wait_for("document.getElementById('confirmation').open")
    page.tab_to("#measure")
    page.tab_to("#confirm")
    page.press("Enter")
    page.wait_for("document.querySelector('#apply-result progress')")
    page.wait_for("document.getElementById('apply-result').innerText.includes('comparing 3')")
    assert "hbatune apply --profile oltp is running" in page.get_text("#apply-result")
    assert page.evaluate("document.getElementById('rollback').disabled")
    page.evaluate("cockpit.endCommand(3)")
    page.wait_for("document.querySelector('#apply-result [role=alert]')")
    assert page.get_text("#apply-result").startswith("comparing 3 endpoints")


def test_measurement_is_a_choice(site: Site, recorded: Answers) -> None:
    page = site.show({**recorded, "apply --profile oltp --no-probe --json": recorded[APPLY]})
    choose_profile(page)
    page.tab_to("#apply")
    page.press("Enter")
    page.wait_for("document.getElementById('confirmation').open")
    page.tab_to("#measure")
    page.press(" ")
    page.tab_to("#confirm")
    page.press("Enter")
    page.wait_for("document.getElementById('apply-result').innerText.includes('Applied')")
    assert ["apply --profile oltp --no-probe --json", "require"] in site.calls()


@pytest.mark.parametrize(("code", "tone"), [(0, "good"), (1, "look"), (4, "off")])
def test_answers_of_status_are_no_failures(
    site: Site, recorded: Answers, code: int, tone: str
) -> None:
    page = site.show({**recorded, "status --json": [[code, recorded["status --json"][0][1]]]})
    assert page.evaluate("document.getElementById('status').dataset.tone") == tone
    assert page.evaluate("document.querySelector('#status [role=alert]')") is None


def test_failed_commands_show_their_messages(site: Site, recorded: Answers) -> None:
    failed: list[list[object]] = [[2, REFUSED]]
    page = site.show({**recorded, "status --json": failed, DIFF: failed})
    assert "cannot tell whether this host is tuned" in page.get_text("#headline")
    text = "it would take 9 GiB of memory\nallow more with memory_limit"
    assert page.get_text("#status [role=alert]") == text
    page.tab_to("#profile")
    page.press("o")
    page.wait_for("document.querySelector('#plan-content [role=alert]')")
    assert page.get_text("#plan-content") == text

    page = site.show({**recorded, "apply --profile oltp --dry-run --json": failed})
    choose_profile(page)
    page.tab_to("#apply")
    page.press("Enter")
    page.wait_for("document.querySelector('#apply-result [role=alert]')")
    assert page.get_text("#apply-result") == text
    assert not page.evaluate("document.getElementById('confirmation').open")


@pytest.mark.parametrize(
    ("problem", "text"),
    [("not-found", "hbatune is not installed"), ("access-denied", "access-denied")],
)
def test_command_that_cannot_start_is_explained(
    site: Site, recorded: Answers, problem: str, text: str
) -> None:
    page = site.show({command: [[problem, ""]] for command in recorded})
    for part in ("status", "plan-content", "disks"):
        page.wait_for(f"document.getElementById('{part}').innerText.includes('{text}')")


def test_user_without_rights_can_only_look(site: Site, recorded: Answers) -> None:
    page = site.show(recorded, allowed=False)
    choose_profile(page)
    assert "administrative access is off" in page.get_text("#limited")
    assert page.evaluate("document.getElementById('apply').disabled")
    assert page.evaluate("document.getElementById('rollback').disabled")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_phone_shows_every_column(site: Site, recorded: Answers, dark: bool) -> None:
    page = site.show(recorded, 400, dark=dark)
    choose_profile(page)
    page.wait_for("document.querySelectorAll('#disks tbody tr').length > 0")
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    right = page.evaluate(
        "Math.max(...[...document.querySelectorAll('td, dd, p, button, select')]"
        ".map((element) => element.getBoundingClientRect().right))"
    )
    assert right <= 400
    page.tab_to("#apply")
    page.press("Enter")
    page.wait_for("document.getElementById('confirmation').open")
    edges = "document.getElementById('confirmation').getBoundingClientRect()"
    assert page.evaluate(f"{edges}.right") <= 400
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(21, 21, 21)" if dark else "rgb(240, 240, 240)")


def test_style_of_cockpit_wins(site: Site, recorded: Answers) -> None:
    page = site.show(recorded)
    page.evaluate("localStorage.setItem('shell:style', 'dark')")
    page.evaluate("window.dispatchEvent(new CustomEvent('cockpit-style', { detail: {} }))")
    try:
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == "rgb(21, 21, 21)"
    finally:
        page.evaluate("localStorage.clear()")


CANARY = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def poison(value: Any) -> Any:
    """Return a JSON value whose texts are hostile, except the words that the page looks for."""
    if isinstance(value, str):
        return value if value in ("drift", "kept", "iops", "mean", "p99") else CANARY + value
    if isinstance(value, list):
        return [poison(item) for item in value]
    if isinstance(value, dict):
        return {key: poison(item) for key, item in value.items()}
    return value


def poison_output(output: str) -> str:
    """Return the output of a command with hostile texts in its document and its messages."""
    start = output.index("{")
    messages = "".join(f"{CANARY}{line}\n" for line in output[:start].splitlines())
    if output[start + 1] == "\n":
        return messages + json.dumps(poison(json.loads(output[start:])), indent=1) + "\n"
    documents = [json.dumps(poison(json.loads(line))) for line in output[start:].splitlines()]
    return messages + "".join(f"{document}\n" for document in documents)


def test_hostile_texts_stay_texts(site: Site, recorded: Answers) -> None:
    answers: Answers = {}
    for command, runs in recorded.items():
        answers[command] = [[code, poison_output(str(output))] for code, output in runs]
    answers["profiles --json"] = recorded["profiles --json"]
    page = site.show(answers)
    choose_profile(page)
    page.tab_to("#apply")
    page.press("Enter")
    page.wait_for("document.getElementById('confirmation').open")
    page.tab_to("#confirm")
    page.press("Enter")
    page.wait_for("document.getElementById('apply-result').innerText.includes('Applied')")
    page.wait_for("!document.getElementById('rollback').disabled")
    page.tab_to("#rollback")
    page.press("Enter")
    page.wait_for("document.getElementById('confirmation').open")
    parts = ("headline", "status-content", "disks", "plan-content", "apply-result", "confirmation")
    for part in parts:
        assert CANARY in page.evaluate(f"document.getElementById('{part}').textContent"), part
    assert page.evaluate("document.querySelectorAll('img').length") == 0
    assert page.evaluate("document.scripts.length") == 2
    assert page.evaluate("document.title") == "Storage tuning"


@pytest.mark.usefixtures("_namespaces")
def test_names_of_a_hostile_machine_stay_texts(site: Site, tmp_path: Path) -> None:
    page = site.show(record_answers(tmp_path, machines.hostile(), LOOKS), 400)
    page.wait_for("document.getElementById('profile').options.length > 1")
    page.tab_to("#profile")
    page.press(*"oltp")
    page.wait_for("document.getElementById('plan-content').innerText.includes('Left alone')")
    assert "sda sdb sdc sdz" in page.get_text("#plan-content")
    assert "HBA" in page.get_text("#status-content")
    assert page.evaluate("document.querySelectorAll('b').length") == 0
    assert page.evaluate("document.documentElement.scrollWidth") == 400
