"""The pages of measurements are those of the results in the repository."""

import importlib
import json
from typing import Any

import pytest


@pytest.fixture(scope="module")
def report() -> Any:
    return importlib.import_module("benchmarks.report")


def test_small_pages_are_those_of_their_results(report: Any) -> None:
    for script in report.SCRIPTS:
        written = (report.RESULTS / f"{report.result_of(script)}.md").read_text(encoding="utf-8")
        assert written == report.small_page(script), "run python -m benchmarks.report"


@pytest.mark.parametrize(
    "name", ["engine_tables", "engine_core", "engine_core_200k", "engine_real", "engine_1569960"]
)
def test_pages_of_the_engine_hold_each_data_set(report: Any, name: str) -> None:
    content = json.loads((report.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    written = (report.RESULTS / f"{name}.md").read_text(encoding="utf-8")
    for graph in content["graphs"]:
        assert f"<summary>{graph['graph']}</summary>" in written


def test_every_page_is_linked(report: Any) -> None:
    written = report.PAGE.read_text(encoding="utf-8")
    names = {path.name for path in report.RESULTS.glob("*.md")} - {report.ORIGINS.name}
    assert {name for name in names if f"(results/{name})" not in written} == set()
