"""Golden numbers of a report: what is recorded of each table, and how a new run is compared."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"
CHANGES = GOLDEN / "changes.md"
DIGITS = 5
RELATIVE, ABSOLUTE = 1e-3, 1e-5
"""Tolerances: other processors and versions of libraries add in another order."""

RATES = ("count", "selected", "rate", "ratio", "verdict")
ERRORS = ("accuracy", "fpr", "fnr")
CONSISTENCY = ("nodes", "share", "expected")
TESTS = ("effect", "p", "q", "n_effective", "verdict")


def numbers(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a report that a reader would cite."""
    sections = {section["id"]: section for section in report["sections"]}
    groups = [row for row in rows(sections, "counts") if not row["unknown"]]
    # Without a class in its name a group would stand for several favourable classes.
    favourable = {row["class"] for row in groups}
    prefix = {row["class"]: f"{row['class']}: " if len(favourable) > 1 else "" for row in groups}
    pairs = nearness(rows(sections, "pairs"))
    tests = rows(sections, "tests")
    consistency = rows(sections, "consistency")
    found = {
        "people": audited(report),
        "findings": len(report["named"]),
        "groups": {prefix[row["class"]] + row["group"]: picked(row, RATES) for row in groups},
        "errors": {row["group"]: picked(row, ERRORS) for row in groups if row["judged"]},
        "tests": {f"{row['group']}: {row['test']}": picked(row, TESTS) for row in tests},
        "pairs": {"count": len(pairs), "nearest": pairs[0], "farthest": pairs[-1]} if pairs else {},
        "consistency": {row["group"]: picked(row, CONSISTENCY) for row in consistency},
    }
    return dict(rounded(found))


def audited(report: Mapping[str, Any]) -> int:
    """Return the number of audited rows, as the table of the subject says it."""
    text = next(value for key, value in report["subject"].items() if key.startswith("Audited"))
    return int(re.match(r"[\d,]+", text)[0].replace(",", ""))  # type: ignore[index]


def rows(sections: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the rows of the first table of a section."""
    section_tables = sections.get(name, {}).get("tables", [])
    return section_tables[0]["rows"] if section_tables else []


def nearness(pairs: list[dict[str, Any]]) -> list[float]:
    """Return how near each pair is: its distance, or its similarity."""
    column = next((name for name in ("distance", "similarity") if pairs and name in pairs[0]), None)
    return [pair[column] for pair in pairs] if column else []


def picked(row: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return the columns of a row that are known."""
    return {name: row[name] for name in names if row.get(name) is not None}


def rounded(value: Any) -> Any:
    """Return a structure with its floats rounded to ``DIGITS`` significant digits."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value


def differences(golden: Any, new: Any, place: str = "") -> Iterator[str]:
    """Yield one line for each number that is not as in the golden file."""
    if isinstance(golden, dict) and isinstance(new, dict):
        for key in sorted(golden.keys() | new.keys()):
            inner = f"{place} / {key}" if place else str(key)
            if key not in new:
                yield f"{inner}: no longer there"
            elif key not in golden:
                yield f"{inner}: new"
            else:
                yield from differences(golden[key], new[key], inner)
    elif not same(golden, new):
        yield f"{place}: {golden} became {new}"


def same(golden: Any, new: Any) -> bool:
    """Return whether two values are equal within the tolerances."""
    if isinstance(golden, float) or isinstance(new, float):
        both = isinstance(golden, int | float) and isinstance(new, int | float)
        return both and math.isclose(golden, new, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return bool(golden == new)


def load(name: str) -> dict[str, Any] | None:
    """Return the golden numbers of a table, None if there are none."""
    path = GOLDEN / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def accept(name: str, new: Mapping[str, Any], reason: str) -> None:
    """Write the golden numbers of a table, and add the reason of the change to changes.md."""
    GOLDEN.mkdir(exist_ok=True)
    (GOLDEN / f"{name}.json").write_text(json.dumps(new, indent=1) + "\n", encoding="utf-8")
    with CHANGES.open("a", encoding="utf-8") as changes:
        changes.write(f"| {name} | {reason.replace('|', '/')} |\n")
