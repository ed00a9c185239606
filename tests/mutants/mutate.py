"""Makes mutants of a JSON document: other types, huge numbers, other names, damage. Seeded."""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

import msgspec

Place = tuple[Any, Any]
"""A list or a dict, and the index or key in it."""

_RAW = "@raw@"
_NOT_JSON = ("NaN", "Infinity", "-Infinity", "1e999", "-1e400", "1e-320", "9" * 400, "0x10", "[[")
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 7, 255, 4096, 2**31, 2**63, 10**19, -(10**19)),
    *(0.0, 0.5, -0.5, 1e-99, 1e19, -1e19, 1e18, 3e9, 1.5),
    *("", "x", "0", "-1", "0-4294967295", "a" * 5_000, "\n\x1b[31m\u202e", "<script>", "\N{BOMB}"),
    *("a" * 70_000, "a" + "\u0301" * 60_000 + " y" * 2_000, "\u0301 " * 2_000, "9" * 4_000),
    *("../../etc", "none", "[none]", "%s{x}", "wwn-0x5000", "0-8191", "1e999", "*[", "\x00"),
    *([], {}, [[]], {"": 1}, [None], {"type": "missing", "reason": "absent"}),
    *({"type": "attribute", "text": "", "writable": True}, {"type": "leave"}),
    *({"type": "value", "value": True}, {"type": "at_least", "value": -1}),
)
_NOISE = ("", "\n", "\x1b]0;x\x07", "@", "/", ":", "-", ",", "9" * 30, "é", "*", "\\")
_MOST = 400
"""Copies at most that one mutation makes of one element."""


class Source:
    """A real document, of which mutants are made; its places and its texts are found once."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self._texts = sorted({leaf for leaf in _leaves(msgspec.json.decode(text)) if leaf} or {"x"})

    def mutant(self, random: Random) -> bytes:
        """Return the document with a few mutations, or damaged as bytes."""
        if random.random() < 0.1:
            return random.choice(_DAMAGES)(self.text, random)
        document = {"": msgspec.json.decode(self.text)}
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            places = list(_places(document))
            # Lists of a thousand equal places would hide the few that are the document's frame.
            place = random.choice(places) if random.random() < 0.7 else _walked(document, random)
            random.choice(_MUTATIONS)(place, random, self._texts)
        text = msgspec.json.encode(document[""])
        for raw in _NOT_JSON if _RAW.encode() in text else ():
            text = text.replace(f'"{_RAW}{raw}"'.encode(), raw.encode())
        return text


def _places(value: Any) -> Iterator[Place]:
    pending = [value]
    while pending:
        container = pending.pop()
        key: Any
        for key in container if isinstance(container, dict) else range(len(container)):
            yield container, key
            if isinstance(container[key], dict | list):
                pending.append(container[key])


def _leaves(value: Any) -> Iterator[str]:
    for container, key in _places([value]):
        if isinstance(container[key], str):
            yield container[key]


def _walked(document: Any, random: Random) -> Place:
    """Return a random place, found by descending from the top."""
    container, key = document, ""
    while isinstance(container[key], dict | list) and container[key] and random.random() < 0.8:
        container = container[key]
        key = random.choice(
            list(container) if isinstance(container, dict) else range(len(container))
        )
    return container, key


def _other(place: Place, random: Random, texts: list[str]) -> None:
    container, key = place
    # A copy: later mutations of this document change it, and the values belong to all of them.
    container[key] = deepcopy(random.choice(_VALUES))


def _no_json(place: Place, random: Random, texts: list[str]) -> None:
    container, key = place
    container[key] = _RAW + random.choice(_NOT_JSON)


def _gone(place: Place, random: Random, texts: list[str]) -> None:
    container, key = place
    if key != "":
        del container[key]


def _again(place: Place, random: Random, texts: list[str]) -> None:
    container, key = place
    if isinstance(container, list):
        container[key:key] = [container[key]] * random.choice((1, 1, 2, _MOST))
    elif key != "":
        container[random.choice(texts)] = container[key]


def _renamed(place: Place, random: Random, texts: list[str]) -> None:
    container, key = place
    if isinstance(container[key], str):
        container[key] = random.choice(texts)
    elif isinstance(container, dict) and key != "":
        container[random.choice((*texts[:20], "", "x", f"{key}x"))] = container.pop(key)


def _scaled(place: Place, random: Random, texts: list[str]) -> None:
    container, key = place
    if isinstance(container[key], int | float) and not isinstance(container[key], bool):
        factor = random.choice((-1, 0, 2, 1e3, 1e9, 1e15, 1e-3, 1e-12, math.pi))
        scaled = container[key] * factor
        container[key] = (
            int(scaled) if isinstance(container[key], int) and random.random() < 0.7 else scaled
        )


def _spoiled(place: Place, random: Random, texts: list[str]) -> None:
    container, key = place
    if isinstance(container[key], str):
        at = random.randrange(len(container[key]) + 1)
        noise = random.choice(_NOISE)
        container[key] = (
            container[key][:at] + noise + container[key][at + random.choice((0, 1, 5)) :]
        )


def _deep(place: Place, random: Random, texts: list[str]) -> None:
    container, key = place
    for _ in range(random.choice((1, 3, 40, 200))):
        container[key] = random.choice(([container[key]], {"a": container[key]}))


def _swapped(place: Place, random: Random, texts: list[str]) -> None:
    container, key = place
    keys = list(container) if isinstance(container, dict) else list(range(len(container)))
    second_key = random.choice(keys)
    container[key], container[second_key] = container[second_key], container[key]


Mutation = Callable[[Place, Random, list[str]], None]
_MUTATIONS: tuple[Mutation, ...] = (
    *(_other, _other, _no_json, _gone, _again, _renamed, _renamed),
    *(_scaled, _scaled, _spoiled, _deep, _swapped),
)


def _truncated(text: bytes, random: Random) -> bytes:
    return text[: random.randrange(len(text))]


def _flipped(text: bytes, random: Random) -> bytes:
    damaged = bytearray(text)
    for _ in range(random.choice((1, 3, 20))):
        damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
    return bytes(damaged)


def _shuffled(text: bytes, random: Random) -> bytes:
    first, second = sorted(random.randrange(len(text)) for _ in range(2))
    return text[first:second] + text[:first] + text[second:]


def _bracketed(text: bytes, random: Random) -> bytes:
    at = random.randrange(len(text))
    return text[:at] + random.choice((b"[", b'{"a":')) * random.choice((5, 50, 5_000)) + text[at:]


_DAMAGES = (_truncated, _flipped, _shuffled, _bracketed)
