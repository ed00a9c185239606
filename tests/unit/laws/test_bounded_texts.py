"""Every text of a stranger's file has a length bound in its type, and every errno a maximum."""

from collections.abc import Iterator

import msgspec
import pytest
from msgspec import inspect

from hbatune.agent.status import Status
from hbatune.probe.history import History
from hbatune.sizing.needs import WatchedMoment
from hbatune.snapshot.file import Snapshot


def list_unbounded(type_: inspect.Type, place: str, visited: set[type]) -> Iterator[str]:
    """Yield each text or errno without a bound. A pattern of a name is a bound."""
    match type_:
        case inspect.StrType(max_length=None, pattern=None) | inspect.AnyType():
            yield place
        case inspect.IntType(le=None) if place.endswith(".errno"):
            yield place
        case inspect.Metadata():
            yield from list_unbounded(type_.type, place, visited)
        case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
            for part in types:
                yield from list_unbounded(part, place, visited)
        case inspect.CollectionType():
            yield from list_unbounded(type_.item_type, place, visited)
        case inspect.DictType():
            yield from list_unbounded(type_.key_type, place, visited)
            yield from list_unbounded(type_.value_type, place, visited)
        case inspect.StructType(cls=cls) if cls not in visited:
            visited.add(cls)
            for field in type_.fields:
                yield from list_unbounded(field.type, f"{cls.__name__}.{field.name}", visited)


@pytest.mark.parametrize("content", [Snapshot, History, Status, WatchedMoment])
def test_foreign_texts_are_bounded(content: type) -> None:
    assert list(list_unbounded(inspect.type_info(content), content.__name__, set())) == []


def test_unbounded_texts_are_reported() -> None:
    class Stored(msgspec.Struct):
        values: dict[str, tuple[int | str, ...]]

        errno: int | None

    stored = list_unbounded(inspect.type_info(Stored), "Stored", set())
    assert list(stored) == ["Stored.values"] * 2 + ["Stored.errno"]
