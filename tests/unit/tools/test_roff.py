"""Roff from Markdown: nothing of a page is lost, and nothing of it is a request to roff."""

import pytest

from tools.roff import convert_markdown, inline


@pytest.mark.parametrize(
    ("text", "roff"),
    [
        (".conf and 'quoted'", "\\&.conf and \\(aqquoted\\(aq"),
        ("run `apply --json` now", "run \\fB\\%apply \\%\\-\\-json\\fR now"),
        ("a \\| in a cell, `a*b` and 2 * 3 * 4", "a | in a cell, \\fB\\%a*b\\fR and 2 * 3 * 4"),
        ("**bold** and *italic*", "\\fBbold\\fR and \\fIitalic\\fR"),
        ("see [rules](write-your-first-rule.md)", "see hbatune\\-rules(5)"),
        ("see [watch.md](watch.md#alerts)", "see watch.md"),
        ("see [the alerts](watch.md)", "see the alerts (watch.md)"),
        ("see [below](#alerts)", "see below"),
    ],
)
def test_inline_markdown_becomes_fonts(text: str, roff: str) -> None:
    assert inline(text) == roff


def test_blocks_become_macros() -> None:
    page = """\
# Title

First line
of a paragraph:

    a = "b"

    c = 1

## Keys of `x`

- one
  item
- another

| key | meaning | source |
| --- | --- | --- |
| `a` | this \\| that | D0 |
| `b` | more | |

```toml
[t]

d = 2
```
"""
    blocks = convert_markdown(page)
    assert "Title" not in "".join(blocks)
    assert blocks[:2] == [".SH DESCRIPTION", "First line of a paragraph:"]
    assert blocks[2] == '.PP\n.RS 4\n.EX\na = "b"\n\nc = 1\n.EE\n.RE'
    assert blocks[3:6] == [".SH KEYS OF X", ".IP \\(bu 2\none item", ".IP \\(bu 2\nanother"]
    assert blocks[6:9] == [
        ".TP\n\\fIkey\\fR\n\\fImeaning\\fR",
        ".TP\n\\fB\\%a\\fR\nthis | that (source: D0)",
        ".TP\n\\fB\\%b\\fR\nmore",
    ]
    assert blocks[9:] == [".PP\n.RS 4\n.EX\n[t]\n\nd = 2\n.EE\n.RE"]
