import math
import re
from xml.etree import ElementTree as ET

import pytest

from cfe_faiss.audit.reporting.document import Column, Neighbour, Plot, Side, Table
from cfe_faiss.audit.reporting.files import as_file, draw, neighbourhood, standalone_chart

HOSTILE = "</svg><script>alert(1)</script>\ufffe"
SVG = "{http://www.w3.org/2000/svg}"
PLOT = Plot((0.0, 0.5, 1.0), guides=(0.8,), expected="expected", before="before")
COLUMN = Column("share", HOSTILE, "share", ("low", "high"), plot=PLOT)
ROWS = (
    {"name": HOSTILE, "share": 0.5, "low": 0.25, "high": 0.75, "expected": 0.3, "before": 0.9},
    {
        "name": "x" * 500,
        "share": math.nan,
        "low": None,
        "high": None,
        "expected": None,
        "before": None,
    },
    {
        "name": "beyond the scale",
        "share": 7.0,
        "low": -3.0,
        "high": 9.0,
        "expected": 1.0,
        "before": None,
    },
)
NEIGHBOURHOODS = [
    Side(
        0,
        "a",
        "no",
        None,
        neighbours=tuple(Neighbour(HOSTILE, i, i == 1) for i in range(8)),
        edges=((0, 4), (1, 2)),
    ),
    Side(1, "b", "no", None, style=1),
]


def shapes(svg, tag, style):
    return [
        shape
        for shape in ET.fromstring(str(svg)).iter(tag)
        if shape.attrib.get("class", "").startswith(style)
    ]


def place(shape, name="cx"):
    return float(shape.attrib[name].removesuffix("%"))


def test_places_of_a_chart_are_in_proportion():
    (value,) = shapes(draw("strip", COLUMN, ROWS[0]), "circle", "value")
    (interval,) = shapes(draw("strip", COLUMN, ROWS[0]), "line", "interval")
    (expected,) = shapes(draw("strip", COLUMN, ROWS[0]), "line", "expected")
    (before,) = shapes(draw("strip", COLUMN, ROWS[0]), "line", "before")
    left, middle, right = (
        place(tick, "x") for tick in shapes(draw("axis", COLUMN), "text", "tick")
    )
    assert place(value) == middle == (left + right) / 2
    assert place(interval, "x1") == pytest.approx((left + middle) / 2)
    assert place(interval, "x2") == pytest.approx((middle + right) / 2)
    assert place(expected, "x1") == pytest.approx(left + 0.3 * (right - left))
    assert place(before, "x1") == pytest.approx(left + 0.9 * (right - left))


@pytest.mark.parametrize("row", ROWS)
def test_everything_lies_within_the_chart(row):
    for shape in ET.fromstring(str(draw("strip", COLUMN, row))).iter():
        assert all(
            0 <= place(shape, name) <= 100 for name in ("x1", "x2", "cx") if name in shape.attrib
        )


@pytest.mark.parametrize("numbers", [[], [None, math.nan], [0.5], [-2.0, 1e6]])
def test_a_scale_holds_all_numbers(numbers):
    plot = Plot.around(numbers)
    known = [number for number in numbers if number is not None and math.isfinite(number)]
    assert plot.ticks[0] < plot.ticks[-1]
    assert all(plot.ticks[0] <= number <= plot.ticks[-1] for number in known)


def test_a_chart_as_a_file_is_well_formed_and_escaped():
    table = Table("table", (Column("name", "Name"), COLUMN), ROWS, caption=HOSTILE)
    root = ET.fromstring(standalone_chart(table, COLUMN))
    assert root.tag == f"{SVG}svg"
    assert root.find(f"{SVG}title").text == HOSTILE.replace("\ufffe", "\ufffd")
    assert not list(root.iter(f"{SVG}script"))
    assert "--ink" in root.find(f"{SVG}style").text
    assert len(list(root.iter(f"{SVG}circle"))) == 2


@pytest.mark.parametrize("drawing", NEIGHBOURHOODS)
def test_neighbourhoods_are_well_formed_escaped_and_within_the_drawing(drawing):
    root = ET.fromstring(str(neighbourhood(drawing, HOSTILE)))
    assert root.find("title").text == HOSTILE.replace("\ufffe", "\ufffd")
    width, height = (float(root.attrib[name]) for name in ("width", "height"))
    for shape in root.iter():
        assert all(0 <= float(shape.attrib.get(name, 0)) <= width for name in ("x", "cx"))
        assert all(0 <= float(shape.attrib.get(name, 0)) <= height for name in ("y", "cy"))
    assert ET.fromstring(as_file(neighbourhood(drawing, HOSTILE))).tag == f"{SVG}svg"


def test_classes_differ_in_shape_and_common_neighbours_in_outline():
    outlines = [re.sub(r"class-\d", "", str(draw("mark", style))) for style in range(6)]
    assert len(set(outlines)) == 6
    root = ET.fromstring(str(neighbourhood(NEIGHBOURHOODS[0], "name")))
    assert sum("shared" in shape.attrib.get("class", "") for shape in root.iter()) == 1
    assert sum(shape.attrib.get("class", "").startswith("class ") for shape in root.iter()) == 9
