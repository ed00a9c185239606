"""Old values as udev keeps them: under which name, and what they were. Pure."""

from collections.abc import Mapping

from hbatune.facts.saved import PREFIX
from hbatune.settings.table import ASYNC_DEPTH, SETTINGS, Value, setting

_SCHEDULER = "scheduler"


def property_of(name: str) -> str:
    """Return the property that a setting's old value is saved as."""
    return f"{PREFIX}{_suffix(name)}"


def _suffix(name: str) -> str:
    return name.removeprefix("queue/").replace("/", "_").upper()


def parse(texts: Mapping[str, str]) -> dict[str, Value]:
    """Return the typed values, by setting; what makes no sense is not there."""
    values: dict[str, Value] = {}
    for name in (*SETTINGS, ASYNC_DEPTH):
        text = texts.get(_suffix(name))
        if text:
            try:
                values[name] = selected(text) if name == _SCHEDULER else setting(name).parse(text)
            except ValueError:
                continue
    return values


def selected(text: str) -> str:
    """Return the scheduler that was in use: udev has put ``_`` in the place of the brackets.

    One ``_`` at each end is the bracket's; a name may have more of them. ValueError where no
    word, or more than one, looks marked.
    """
    words = text.split()
    marked = [word[1:-1] for word in words if len(word) > 2 and word[0] == word[-1] == "_"]
    if len(marked) == 1:
        return marked[0]
    if len(words) == 1 and not marked:
        return words[0]
    raise ValueError(text)
