"""Labels: none on another, none outside, and the more important first."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from hbatune.report.svg import (
    Box,
    estimate_width,
    fit_text,
    place_label,
    select_apart,
)

FRAME = Box(0, 0, 400, 200)
points = st.lists(st.tuples(st.floats(0, 400), st.floats(0, 200)), min_size=1, max_size=20)


def test_touching_boxes_do_not_overlap() -> None:
    assert not Box(0, 0, 10, 10).overlaps(Box(10, 0, 20, 10))
    assert Box(0, 0, 10, 10).overlaps(Box(9, 9, 20, 20))
    assert not Box(0, 0, 10, 10).overlaps(Box(2, 10, 4, 20))


def test_only_long_text_is_cut() -> None:
    assert fit_text("sda", 100) == "sda"
    cut = fit_text("a very long name of a drive", 80)
    assert cut.endswith("…")
    assert estimate_width(cut) <= 80
    assert fit_text("anything", 0) == "…"


def test_wide_letters_need_more_room() -> None:
    assert estimate_width("WWW") > estimate_width("aaa") > estimate_width("iii")


def test_crowded_ticks_retain_both_ends() -> None:
    middles = [10.0 * number for number in range(8, 20)]
    widths = [estimate_width(str(number)) for number in range(8, 20)]
    chosen = select_apart(middles, widths)
    assert {0, len(middles) - 1} < chosen
    assert len(chosen) < len(middles)
    for a, b in combinations(sorted(chosen), 2):
        assert middles[a] + widths[a] / 2 <= middles[b] - widths[b] / 2
    assert select_apart([], []) == set()
    assert select_apart(middles[:1], widths) == {0}


@given(points)
def test_labels_stay_apart_inside_frame(dots: list[tuple[float, float]]) -> None:
    obstacles = [Box(x - 5, y - 5, x + 5, y + 5) for x, y in dots]
    placed: list[Box] = []
    for number, dot in enumerate(dots):
        if box := place_label(f"{number}", dot, FRAME, [*obstacles, *placed], dots):
            placed.append(box)
    assert not any(a.overlaps(b) for a, b in combinations(placed, 2))
    assert all(box.within(FRAME) for box in placed)
    assert not any(box.overlaps(obstacle) for box in placed for obstacle in obstacles)


def test_first_label_wins_tight_space() -> None:
    tight = Box(0, 0, 80, 30)
    first = place_label("knee: 32", (40, 26), tight, [], [])
    assert first is not None
    assert place_label("64", (40, 26), tight, [first], []) is None


def test_label_avoids_line() -> None:
    along = [(x, 85.0) for x in range(0, 400, 4)]  # just above the point
    box = place_label("16", (200, 100), FRAME, [Box(195, 95, 205, 105)], along)
    assert box is not None
    assert not box.held(along)
