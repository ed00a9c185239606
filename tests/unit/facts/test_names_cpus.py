"""Lists of CPUs, as several of the kernel's files print them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hbatune.facts import names


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8\n", (0, 1, 2, 3, 8)),
        ("5", (5,)),
        ("0, 1", (0, 1)),  # mq/N/cpu_list
        ("\n", ()),  # cpu/isolated, where none is
        (" (null)\n", ()),  # cpu/nohz_full, where none is
        ("2,1,1-2", (1, 2)),
    ],
)
def test_kernel_list_is_parsed(text: str, cpus: tuple[int, ...]) -> None:
    assert names.parse_cpus(text) == cpus


@pytest.mark.parametrize("text", ["a", "1-", "-1", "3-1", "0,,1", "0x3", "1 2", "0-9999999999"])
def test_malformed_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        names.parse_cpus(text)


@given(st.sets(st.integers(0, 300)))
def test_list_survives_round_trip(cpus: set[int]) -> None:
    assert names.parse_cpus(names.join_cpus(cpus)) == tuple(sorted(cpus))


def test_joined_list_is_shortest() -> None:
    assert names.join_cpus([8, 3, 2, 1, 0, 10, 11]) == "0-3,8,10-11"


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8", (0, 1, 2, 3, 8)),
        ("all", tuple(range(10))),
        ("8-N", (8, 9)),
        ("N", (9,)),
        ("0-7:2/4", (0, 1, 4, 5)),
        ("all:1/5", (0, 5)),
    ],
)
def test_given_list_is_lenient(text: str, cpus: tuple[int, ...]) -> None:
    assert names.parse_given_cpus(text, 9) == cpus


@pytest.mark.parametrize("text", ["", "x", "0-", "3-1", "0-7:2", "0-7:0/4", "0-7:5/4", "0,,1"])
def test_malformed_given_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (of int, or ours)
        names.parse_given_cpus(text, 9)


@pytest.mark.parametrize(
    ("text", "cpus"), [("f", (0, 1, 2, 3)), ("00000001,00000003", (0, 1, 32)), ("0", ())]
)
def test_mask_has_32_bit_groups(text: str, cpus: tuple[int, ...]) -> None:
    assert names.parse_mask(text) == cpus


@pytest.mark.parametrize("text", ["", "0x3", "g", "1,", "123456789", "-1"])
def test_malformed_mask_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (of int, or ours)
        names.parse_mask(text)


def test_senseless_text_has_no_cpus() -> None:
    assert names.find_cpus("0-1,3\n") == (0, 1, 3)
    assert names.find_cpus("0-x") is None
    assert names.find_cpus("f", names.parse_mask) == (0, 1, 2, 3)
    assert names.find_cpus("0-1", names.parse_mask) is None
