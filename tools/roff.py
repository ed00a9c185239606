"""Write text in roff, the language of man pages (man(7)), and convert Markdown to it."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from textwrap import indent

from hbatune import __version__
from tools.packaging import epoch

_ESCAPES = {
    "\\": "\\e",
    "-": "\\-",
    "'": "\\(aq",
    "`": "\\(ga",
    "^": "\\(ha",
    "~": "\\(ti",
    "…": "...",
}
"""Characters that roff would replace or interpret, and the text that prints them."""
_PAGES = {
    "configuration.md": "hbatune.toml(5)",
    "write-your-first-rule.md": "hbatune\\-rules(5)",
}
"""The pages in docs/ that are man pages."""


def render_page(name: str, section: int, title: str, purpose: str, body: Sequence[str]) -> str:
    """Return a man page: its header, its name and purpose, and the blocks of its body."""
    day = f"{datetime.fromtimestamp(epoch(), UTC):%Y-%m-%d}"
    lines = [
        f'.TH {escape(name.upper())} {section} {escape(day)} "hbatune {__version__}" "{title}"',
        # Do not stretch the spaces of commands.
        ".ad l",
        ".SH NAME",
        f"{escape(name)} \\- {inline(purpose)}",
        *body,
    ]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Return the text without roff's control characters."""
    escaped = "".join(_ESCAPES.get(character, character) for character in text)
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped


def inline(text: str) -> str:
    """Return a line of Markdown with its code and emphasis in roff's fonts."""
    parts = []
    for part in re.split(r"(`[^`]+`)", text):
        if part.startswith("`") and len(part) > 1:
            parts.append(bold(part[1:-1]))
        else:
            escaped = escape(re.sub(r"\\([|*])", r"\1", part))
            escaped = re.sub(r"\*\*(\w[^*]*)\*\*", r"\\fB\1\\fR", escaped)
            escaped = re.sub(r"\*(\w[^*]*)\*", r"\\fI\1\\fR", escaped)
            parts.append(re.sub(r"\[([^]]+)\]\(([^)]+)\)", _name_page, escaped))
    return "".join(parts)


def bold(text: str) -> str:
    """Return the escaped text in bold. Its words are not hyphenated, so commands can be copied."""
    words = [f"\\%{word}" for word in escape(text).split(" ")]
    return f"\\fB{' '.join(words)}\\fR"


def italic(text: str) -> str:
    """Return the escaped text in italics."""
    return f"\\fI{escape(text)}\\fR"


def list_terms(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a list of terms, which are roff, with their texts, which are Markdown."""
    return "\n".join(f".TP\n{term}\n{inline(text)}" for term, text in pairs)


def convert_markdown(text: str) -> list[str]:
    """Return the blocks of a page in roff, without its title.

    It covers the Markdown in docs/: headings, paragraphs, lists, tables and blocks of code.
    """
    text = re.sub(r"(?m)^# .*\n+", "", text)
    text = re.sub(r"(?ms)^```\w*\n(.*?)^```$", lambda fence: indent(fence[1], "    "), text)
    blocks = [".SH DESCRIPTION"]
    for block in _split_blocks(text):
        lines = block.split("\n")
        if block.startswith("#"):
            heading = block.lstrip("# ").replace("`", "")
            is_section = block.startswith("## ")
            blocks.append(
                f".SH {escape(heading.upper())}" if is_section else f".SS {escape(heading)}"
            )
        elif block.startswith("|"):
            blocks += _convert_table(lines)
        elif block.startswith("- "):
            items = re.split(r"\n- ", block.removeprefix("- "))
            blocks += [f".IP \\(bu 2\n{inline(' '.join(item.split()))}" for item in items]
        elif block.startswith("    "):
            code = [escape(line.removeprefix("    ")) for line in lines]
            blocks.append("\n".join((".PP", ".RS 4", ".EX", *code, ".EE", ".RE")))
        else:
            # A paragraph needs no macro after a heading.
            macro = "" if blocks[-1].startswith((".SH", ".SS")) else ".PP\n"
            blocks.append(macro + inline(" ".join(block.split())))
    return blocks


def _split_blocks(text: str) -> list[str]:
    """Return the blocks between blank lines. A block of code may contain blank lines."""
    blocks: list[str] = []
    for block in re.split(r"\n\n+", text.strip("\n")):
        if block.startswith("    ") and blocks and blocks[-1].startswith("    "):
            blocks[-1] += f"\n\n{block}"
        else:
            blocks.append(block.rstrip("\n"))
    return blocks


def _convert_table(lines: Sequence[str]) -> Iterator[str]:
    """Yield a list with an entry for each row, after the headings of the table's columns."""
    head, _, *rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]
    names = [name.replace("`", "") for name in head]
    yield f".TP\n{italic(names[0])}\n{italic(names[1])}"
    for term, text, *others in rows:
        labelled = zip(names[2:], others, strict=True)
        details = "".join(f" ({name}: {cell})" for name, cell in labelled if cell)
        yield f".TP\n{inline(term)}\n{inline(text + details)}"


def _name_page(link: re.Match[str]) -> str:
    """Return the text of a link with the page that it leads to."""
    text, target = link[1], link[2].partition("#")[0].replace("\\-", "-")
    if not target:
        return text
    page = _PAGES.get(target, escape(target))
    return page if text == escape(target) or target in _PAGES else f"{text} ({page})"
