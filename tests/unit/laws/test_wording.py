"""The English of code, messages, rules and pages: plain names, no bookish turns."""

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import yaml

CHECKOUT = Path(__file__).resolve().parents[3]
TURNS = Path(__file__).with_name("bookish_turns.txt").read_text().splitlines()
"""Patterns that are rare in plain technical English; one with ^ is for the start of a sentence."""
MAX_TURNS = 0.5
"""In 1,000 words."""
VAGUE = frozenset(Path(__file__).with_name("vague_names.txt").read_text().split())
"""Words that say nothing about a value. A name is vague if it has no other words."""
MAX_VAGUE = 0.03
"""The share of local names and parameters."""


def sources() -> Iterator[str]:
    for folder in ("hbatune", "tools"):
        for path in sorted((CHECKOUT / folder).rglob("*.py")):
            yield path.read_text(encoding="utf-8")


def docstrings_of(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        # A text alone is the docstring of a definition, or of the assignment before it.
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield value.value


def comments_of(source: str) -> Iterator[str]:
    lines: list[str] = []
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if token.start[0] != last + 1 and lines:
                yield " ".join(lines)
                lines = []
            lines.append(token.string.lstrip("# "))
            last = token.start[0]
    if lines:
        yield " ".join(lines)


def sentences_of(text: str) -> Iterator[str]:
    for paragraph in re.split(r"\n\s*\n|\n\s*- ", text):
        plain = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "Xcode", " ".join(paragraph.split()))
        yield from re.split(r"(?<=[.!?])\s+", plain)


def messages_of(source: str) -> Iterator[str]:
    """Yield the string literals with at least three words, values in them as X."""
    tree = ast.parse(source)
    documented, texts = set(docstrings_of(source)), list[str]()
    pieces = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            constants = [part for part in node.values if isinstance(part, ast.Constant)]
            pieces.update(map(id, constants))
            parts = [str(part.value) if part in constants else "X" for part in node.values]
            texts.append("".join(parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_message = id(node) not in pieces and node.value not in documented
            texts += [node.value] if is_message else []
    yield from filter(has_words, texts)


def has_words(text: str) -> bool:
    return len(re.findall(r"\b[a-z]{2,}\b", text)) >= 3


def messages_of_templates() -> Iterator[str]:
    """Yield the texts with at least two words in the TOML files of the templates."""
    for path in sorted((CHECKOUT / "templates").glob("*.toml")):
        text = path.read_text(encoding="utf-8").replace("\\\n", "")
        yield from re.findall(r'"([^"\n]*\b[a-z]{2,} [^"\n]*)"', text)


TEXT_KEYS = {
    *("description", "fail_msg", "label", "msg", "name", "short_description", "success_msg"),
    *("summary", "title"),
}
"""The keys of texts for people in Ansible's YAML, alert rules and dashboards."""
MARKED = {".js": r"(?:^|\s)(?://|/\*\*|\*)(?: (.*?))?(?: ?\*/)?$", ".html": "(?!)"}
"""Comments by the suffix of a file; by default with a number sign."""


def remarks_of(text: str, pattern: str) -> Iterator[str]:
    """Yield the comments of a file. Comments on adjacent lines are one."""
    lines: list[str] = []
    for line in text.splitlines():
        if match := re.search(pattern, line):
            lines.append(match[1] or "\n\n")
        elif lines:
            yield " ".join(lines)
            lines = []
    yield " ".join(lines)


def values_of(node: object, key: object = None) -> Iterator[str]:
    """Yield the texts for people in a document of JSON or YAML."""
    if isinstance(node, dict):
        for name, value in node.items():
            yield from values_of(value, name)
    elif isinstance(node, list):
        for value in node:
            yield from values_of(value, key)
    elif isinstance(node, str) and key in TEXT_KEYS:
        yield re.sub(r"\{\{.*?\}\}", "X", node)


def texts_of(path: Path) -> Iterator[str]:
    """Yield the comments and messages of a file that is neither Python nor TOML."""
    text, kind = path.read_text(encoding="utf-8"), path.name.removesuffix(".j2")
    suffix = Path(kind).suffix
    if suffix in (".json", ".yml"):
        yield from values_of(json.loads(text) if suffix == ".json" else yaml.safe_load(text))
    else:
        yield from re.findall(r"\{#-?(.*?)-?#\}", text, re.S)
        yield from filter(has_words, re.findall(r"""["'`]([^"'`\n]*)["'`]""", text))
        text = re.sub(r"\{[{%#].*?[}%#]\}", "", text, flags=re.S)
        yield from re.findall(r"<<'TEXT'\n(.*?)\nTEXT", text, re.S)
    if suffix == ".html":
        shown = re.sub(r"<style>.*?</style>|<[^>]*>", "\n\n", text, flags=re.S)
        yield from filter(has_words, shown.split("\n\n"))
    elif suffix != ".json":
        yield from remarks_of(text, MARKED.get(suffix, r"(?:^|\s)#(?!!)(?: (.*))?$"))


def shipped_texts() -> Iterator[str]:
    """Yield the texts of templates, playbooks, dashboards, alerts, Cockpit's page and the demo."""
    for pattern in (
        *("templates/*.j2", "systemd/*.j2", "udev/*.j2", "ansible/**/*.yml", "metrics/*.json"),
        *("metrics/*.yml", "cockpit/*.js", "cockpit/*.html", "tests/lab/demo.sh"),
    ):
        paths = sorted(CHECKOUT.glob(pattern))
        assert paths, pattern
        yield from chain.from_iterable(map(texts_of, paths))
    for path in sorted((CHECKOUT / "ansible/plugins").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        yield from chain(docstrings_of(source), comments_of(source), messages_of(source))


def pages() -> Iterator[str]:
    """Yield the hand-written pages without their code."""
    for pattern in ("*.md", "docs/*.md", "ansible/README.md"):
        for path in sorted(CHECKOUT.glob(pattern)):
            text = path.read_text(encoding="utf-8")
            if "This page is generated" not in text:
                text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
                yield re.sub(r"^(    .*|#.*)$", "", text, flags=re.M).replace("|", "\n\n")


def require_plain(texts: Iterable[str]) -> None:
    """Fail if the texts have too many bookish turns for their number of words."""
    at_start = re.compile("|".join(turn for turn in TURNS if turn.startswith("^")))
    anywhere = re.compile("|".join(turn for turn in TURNS if not turn.startswith("^")), re.I)
    words, turns = 0, []
    for text in texts:
        for sentence in sentences_of(text):
            words += len(sentence.split())
            turns += [sentence] * len(at_start.findall(sentence))
            turns += [sentence for _ in anywhere.finditer(sentence)]
    assert len(turns) <= MAX_TURNS * words / 1000, "\n".join(turns)


def test_docstrings_and_comments_are_plain() -> None:
    for_readers = ((*docstrings_of(source), *comments_of(source)) for source in sources())
    require_plain(chain.from_iterable(for_readers))


def test_messages_are_plain() -> None:
    of_code = chain.from_iterable(map(messages_of, sources()))
    require_plain((*of_code, *messages_of_templates()))


def test_shipped_texts_are_plain() -> None:
    require_plain(shipped_texts())
    require_short(shipped_texts(), 15)


def test_reasons_of_rules_are_plain() -> None:
    texts = []
    for path in sorted((CHECKOUT / "rules").rglob("*.toml")):
        comments, reasons = list[str](), list[str]()
        for line in path.read_text(encoding="utf-8").splitlines():
            comments.append(line.lstrip("# ") if line.startswith("#") else "")
            reasons += re.findall(r'(?:because|says|title) = "(.*)"', line)
        texts += ["\n".join(comments), *reasons]
    require_plain(texts)


def test_pages_are_plain() -> None:
    require_plain(pages())


def require_short(texts: Iterable[str], mean: int) -> None:
    """Fail if sentences have more words than ``mean``, or if 3 % of them have more than 30."""
    lengths = [len(sentence.split()) for text in texts for sentence in sentences_of(text)]
    prose = [length for length in lengths if length >= 4]
    assert sum(prose) / len(prose) <= mean
    assert sum(length > 30 for length in prose) <= 0.03 * len(prose)


def test_sentences_of_pages_are_short() -> None:
    require_short(pages(), 18)


def test_sentences_of_messages_are_short() -> None:
    of_code = chain.from_iterable(map(messages_of, sources()))
    require_short((*of_code, *messages_of_templates()), 15)


def test_readme_is_short_and_has_a_picture() -> None:
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    (picture,) = re.findall(r"!\[[^\]]+\]\((.+)\)", text)
    assert (CHECKOUT / picture).stat().st_size < 200_000
    prose = re.sub(r"`[^`\n]*`", "code", re.sub(r"\]\([^)]*\)|^(    |#).*$", "", text, flags=re.M))
    assert len(re.findall(r"[^\W_](?:[\w'./%+-]*[^\W_])?", prose)) <= 900


def test_local_names_are_specific() -> None:
    names, vague = 0, []
    for source in sources():
        for function in ast.walk(ast.parse(source)):
            if not isinstance(function, ast.FunctionDef):
                continue
            arguments = function.args
            local = {
                argument.arg
                for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            }
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    local.add(node.id)
            local -= {"self", "cls"}
            names += len(local)
            vague += [name for name in local if set(name.strip("_").split("_")) <= VAGUE]
    assert len(vague) <= MAX_VAGUE * names, sorted(vague)
