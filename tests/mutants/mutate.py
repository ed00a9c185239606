"""Makes mutants of a JSON document: other types, huge numbers, other names, damage. Seeded."""

import math
from collections.abc import Callable, Iterator
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
        it = pending.pop()
        each: Any
        for each in it if isinstance(it, dict) else range(len(it)):
            yield it, each
            if isinstance(it[each], dict | list):
                pending.append(it[each])


def _leaves(value: Any) -> Iterator[str]:
    for it, each in _places([value]):
        if isinstance(it[each], str):
            yield it[each]


def _walked(document: Any, random: Random) -> Place:
    """Return a place found by going down at random, so that each level is as likely."""
    it, key = document, ""
    while isinstance(it[key], dict | list) and it[key] and random.random() < 0.8:
        it = it[key]
        key = random.choice(list(it) if isinstance(it, dict) else range(len(it)))
    return it, key


def _other(place: Place, random: Random, texts: list[str]) -> None:
    it, key = place
    it[key] = random.choice(_VALUES)


def _no_json(place: Place, random: Random, texts: list[str]) -> None:
    it, key = place
    it[key] = _RAW + random.choice(_NOT_JSON)


def _gone(place: Place, random: Random, texts: list[str]) -> None:
    it, key = place
    if key != "":
        del it[key]


def _again(place: Place, random: Random, texts: list[str]) -> None:
    it, key = place
    if isinstance(it, list):
        it[key:key] = [it[key]] * random.choice((1, 1, 2, _MOST))
    elif key != "":
        it[random.choice(texts)] = it[key]


def _renamed(place: Place, random: Random, texts: list[str]) -> None:
    it, key = place
    if isinstance(it[key], str):
        it[key] = random.choice(texts)
    elif isinstance(it, dict) and key != "":
        it[random.choice((*texts[:20], "", "x", f"{key}x"))] = it.pop(key)


def _scaled(place: Place, random: Random, texts: list[str]) -> None:
    it, key = place
    if isinstance(it[key], int | float) and not isinstance(it[key], bool):
        factor = random.choice((-1, 0, 2, 1e3, 1e9, 1e15, 1e-3, 1e-12, math.pi))
        scaled = it[key] * factor
        it[key] = int(scaled) if isinstance(it[key], int) and random.random() < 0.7 else scaled


def _spoiled(place: Place, random: Random, texts: list[str]) -> None:
    it, key = place
    if isinstance(it[key], str):
        at = random.randrange(len(it[key]) + 1)
        noise = random.choice(_NOISE)
        it[key] = it[key][:at] + noise + it[key][at + random.choice((0, 1, 5)) :]


def _deep(place: Place, random: Random, texts: list[str]) -> None:
    it, key = place
    for _ in range(random.choice((1, 3, 40, 200))):
        it[key] = random.choice(([it[key]], {"a": it[key]}))


def _swapped(place: Place, random: Random, texts: list[str]) -> None:
    it, key = place
    keys = list(it) if isinstance(it, dict) else list(range(len(it)))
    other = random.choice(keys)
    it[key], it[other] = it[other], it[key]


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
