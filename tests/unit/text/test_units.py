"""One thing is not "1 things", wherever hbatune counts for people."""

import pytest

from hbatune.text.basic_output import format_count


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (1, ("adapter",), "1 adapter"),
        (0, ("adapter",), "0 adapters"),
        (2, ("hardware queue",), "2 hardware queues"),
        (2, ("pass", "passes"), "2 passes"),
        (1, ("pass", "passes"), "1 pass"),
    ],
)
def test_quantity_agrees_with_number(number: int, words: tuple[str, ...], text: str) -> None:
    assert format_count(number, *words) == text
