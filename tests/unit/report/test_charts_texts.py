"""The texts of pictures and tables: each is used, and each name exists."""

import ast
import re
from pathlib import Path

import pytest

from hbatune.report import charts, page
from hbatune.report.charts import ChartRow, Dot, Mark, Series
from hbatune.report.svg import LegendEntry, Shape
from hbatune.shipped import load_texts

REPORT = Path(charts.__file__).parent
KEYS = (LegendEntry("p99", "s0", Shape.CIRCLE),)


def list_literals() -> set[str]:
    """Return the texts in the report's modules, without the facts of f-strings."""
    literals = set()
    for path in REPORT.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                literals.add(node.value)
    return literals


@pytest.mark.parametrize("part", ["pictures", "tables", "notes"])
def test_each_text_is_used(part: str) -> None:
    literals = list_literals()
    for name in load_texts("report.toml")[part]:
        # ``lun-iops`` is made of the type of its block and the metric.
        assert name in literals or {*re.split(r"(?=-)", name)} <= literals, name


def test_doubted_dot_adds_note() -> None:
    doubted = charts.draw_curves(
        "load", [Series("", (Dot(1, 1, doubted=True),))], title="p99", metric="p99"
    )
    trusted = charts.draw_curves("load", [Series("", (Dot(1, 1),))], title="p99", metric="p99")
    assert "Hollow points" in doubted.caption
    assert "Hollow points" not in trusted.caption
    assert trusted.name == "p99 over IOPS"


def test_doubted_mark_adds_note() -> None:
    row = ChartRow("sda", marks=(Mark(1, KEYS[0], doubted=True),))
    assert "Hollow points" in charts.draw_rows("interference", [row], KEYS).caption


def test_far_ceiling_is_only_text() -> None:
    curves = [Series("", (Dot(1, 1), Dot(2, 2)))]
    near, far = (
        charts.draw_curves("corners-sequential", curves, ceiling=ceiling)
        for ceiling in (4.0, 400.0)
    )
    assert "link: 4" in near.picture
    assert "link carries 400" in far.caption
    assert "link: 400" not in far.picture


def test_missing_fact_is_error() -> None:
    with pytest.raises(KeyError, match="metric"):
        charts.draw_curves("load", [Series("", (Dot(1, 1),))], title="p99")


def test_table_takes_leading_heads() -> None:
    table = page.make_table("sweep", [("8", *map(str, range(10)))], "Depth")
    assert table.heads[:2] == ("Depth", "IOPS")
    assert table.rows[0][0] == "8"
    assert 9 in table.right
