"""Tests of hbatune/facts/endpoints.py."""

import pytest

from hbatune.facts.endpoints import parse_path_groups
from hbatune.facts.model import PathGroup

FAILOVER = (
    "multipath 2 queue_mode mq 1 alua 2 2 service-time 0 1 2 sda 1 1 queue-length 0 2 1 sdb 1 sdc 1"
)


def test_path_groups_follow_table() -> None:
    assert parse_path_groups("multipath 0 0 1 1 round-robin 0 2 1 sda 1 sdb 1") == (
        PathGroup("round-robin", active=True, paths=("sda", "sdb")),
    )
    assert parse_path_groups(FAILOVER) == (
        PathGroup("service-time", active=False, paths=("sda",)),
        PathGroup("queue-length", active=True, paths=("sdb", "sdc")),
    )
    assert parse_path_groups("multipath 1 queue_if_no_path 0 0 1") == ()


@pytest.mark.parametrize(
    "table", ["", "linear 8:0 0", "multipath", "multipath 0 0 x 1", "multipath 0 0 1 1 rr 0 2"]
)
def test_foreign_table_is_error(table: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        parse_path_groups(table)
