"""Headless Chromium with a page to work with: keys, widths, colours and pictures.

The browser's protocol goes through two pipes, so it needs no library and no port.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 240.0
"""The longest wait for the browser, or for a condition of the page, on a busy machine."""
_READS, _WRITES = 3, 4
"""The descriptors that --remote-debugging-pipe reads and writes."""

_KEYS = {"Tab": (9, ""), "Enter": (13, "\r"), "Escape": (27, ""), " ": (32, " ")}

# Resolves as soon as the condition is true: each change of the page is looked at.
_WAIT = """
new Promise((resolve) => {{
  const isTrue = () => {{ try {{ return {condition}; }} catch {{ return false; }} }};
  const observer = new MutationObserver(() => {{
    if (isTrue()) {{ observer.disconnect(); resolve(true); }}
  }});
  const kinds = {{ subtree: true, childList: true, attributes: true, characterData: true }};
  observer.observe(document, kinds);
  if (isTrue()) {{ observer.disconnect(); resolve(true); }}
}})
"""


class PageSession:
    """One page of a browser. ``problems`` are its errors so far, of scripts and of its policy."""

    def __init__(self, browser: "subprocess.Popen[bytes]", reads: int, writes: int) -> None:
        self._browser, self._reads, self._writes = browser, reads, writes
        self._buffer, self._number = b"", 0
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self.problems: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(self, url: str, width: int = 1400, height: int = 900, *, dark: bool = False) -> None:
        """Load a page at this size, in light or dark colours."""
        self.resize(width, height)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self.problems.clear()
        self._events.clear()
        self._call("Page.navigate", url=url)
        deadline = time.monotonic() + SECONDS
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._read_message(deadline)

    def resize(self, width: int, height: int) -> None:
        """Give the page another size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        options = {"awaitPromise": True, "returnByValue": True}
        done = self._call("Runtime.evaluate", expression=expression, **options)
        if "exceptionDetails" in done:
            raise AssertionError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Wait until a JavaScript condition is true; raise AssertionError with the page's text."""
        try:
            self.evaluate(_WAIT.format(condition=condition))
        except TimeoutError:
            self._number += 1  # the browser may answer the first question later
            text = self.evaluate("document.body.innerText")
            raise AssertionError(f"never true: {condition}\n{self.problems}\n{text}") from None

    def get_text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def press(self, *keys: str) -> None:
        """Press keys, one after the other: letters, and the names in ``_KEYS``."""
        for key in keys:
            code, text = _KEYS.get(key) or (ord(key.upper()), key)
            options: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code}
            if text:
                options["text"] = text
            self._call("Input.dispatchKeyEvent", type="keyDown", **options)
            self._call("Input.dispatchKeyEvent", type="keyUp", **options)

    def tab_to(self, selector: str) -> None:
        """Press Tab until an element has the focus, and check that the focus is visible."""
        element = f"document.querySelector({json.dumps(selector)})"
        for _ in range(50):
            if self.evaluate(f"document.activeElement === {element}"):
                break
            self.press("Tab")
        else:
            raise AssertionError(f"Tab does not reach {selector}")
        assert self.evaluate(f"getComputedStyle({element}).outlineStyle") == "solid", selector

    def take_picture(self, path: Path, *, is_entire: bool = True) -> None:
        """Save a picture of the page, from its top to its end, or of its visible part."""
        done = self._call("Page.captureScreenshot", captureBeyondViewport=is_entire)
        path.write_bytes(base64.b64decode(done["data"]))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            answer = self._read_message(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _read_message(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._reads], [], [], left)[0]:
                raise TimeoutError
            self._buffer += os.read(self._reads, 1 << 20)
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._events.append(message)
            details = message["params"].get("exceptionDetails") or message["params"].get("entry")
            if details and details.get("level", "error") == "error":
                self.problems.append(json.dumps(details))
        return message


def find_browser() -> str:
    """Return the path of Chromium."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "chromium is missing: install the Debian package of that name"
    return program


@contextmanager
def open_browser(folder: Path) -> Iterator[PageSession]:
    """Run a browser with its profile below ``folder``."""
    program = find_browser()
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # Descriptors 3 and 4 of this process may be one of the pipes, so move them out of the way.
    high_in, high_out = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out))

    def arrange() -> None:
        os.dup2(high_in, _READS)
        os.dup2(high_out, _WRITES)

    browser = subprocess.Popen(
        [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-extensions",
            "--disable-sync",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}",
        ],
        preexec_fn=arrange,
        pass_fds=(_READS, _WRITES),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for descriptor in (theirs_in, theirs_out, high_in, high_out):
        os.close(descriptor)
    try:
        yield PageSession(browser, ours_in, ours_out)
    finally:
        browser.terminate()
        browser.wait(SECONDS)
        os.close(ours_in)
        os.close(ours_out)
