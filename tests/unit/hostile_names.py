"""Hypothesis strategies of hostile names."""

from hypothesis import strategies as st

NASTY = st.sampled_from(
    [
        *('"', "'", "\\", "\n", "\r", "\0", "\x1b[31m", "\x1b]0;owned\x07", "\x9b", "\u202e"),
        *(
            "$",
            "$(id)",
            "`id`",
            "%",
            "%s",
            "%%",
            "{",
            "}",
            "{{ 7*7 }}",
            "[bold]",
            "[/]",
            "é",
            "\u2028",
        ),
    ]
)


hostile = st.lists(NASTY | st.text(st.characters(codec="utf-8"), max_size=8), max_size=6).map(
    "".join
)
