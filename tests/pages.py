"""What the pages for users show: their commands, and their configuration."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
README = CHECKOUT / "README.md"
DOCS = CHECKOUT / "docs"
_COMMENT = re.compile(r"\s{2,}#.*$")


def pages() -> tuple[Path, ...]:
    """Return the README and all of docs/."""
    return (README, *sorted(DOCS.glob("*.md")))


def steps(page: Path) -> Iterator[tuple[str, str]]:
    """Yield what a page has a reader do, in order: ("run", command) and ("toml", text).

    A command is a line of a block, after a prompt or without one; a transcript has answers
    between its commands, and those are passed over.
    """
    fenced = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            if fenced:
                yield "toml", fenced
            fenced = "\n" if line == "```toml" else ""
        elif fenced:
            fenced += line + "\n"
        elif match := re.match(r" {4}(?:# )?(hbatune .*)$", line):
            yield "run", _COMMENT.sub("", match[1])


def commands(page: Path) -> list[list[str]]:
    """Return the hbatune commands of a page's blocks as lists of words, without ``hbatune``."""
    return [shlex.split(text)[1:] for kind, text in steps(page) if kind == "run"]


def mentioned(page: Path) -> list[list[str]]:
    """Return the whole commands that a page names within its sentences."""
    texts = re.findall(r"`hbatune ([^`]+)`", page.read_text(encoding="utf-8").replace("\n", " "))
    return [shlex.split(text) for text in texts]


def configurations(page: Path) -> list[str]:
    """Return the TOML that a page shows in blocks of that language."""
    return [text for kind, text in steps(page) if kind == "toml"]
