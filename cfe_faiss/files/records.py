"""JSON records in folders, ``manifest.json``, ``shards.json`` and ``job.json``: checked when they are read and written."""

import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from cfe_faiss.files.new_file import new_file
from cfe_faiss.files.outputs import path_within
from cfe_faiss.files.regular import open_regular

_MOST_BYTES = 1 << 28
LARGEST = 1 << 62
"""Largest number of rows, bytes or vectors in a record."""


@dataclass(frozen=True, slots=True)
class Field:
    """Value of a field in a record.

    Attributes
    ----------
    expectation
        What the value must be, in errors.
    accepts
        Return whether a value is as expected.
    """

    expectation: str
    accepts: Callable[[Any], bool]


Form = Field | dict[str, Any] | list[Any]
"""Form of a value: a field; a mapping of names, of which those with a final "?" may be missing; or a list of one form."""


def integer(low: int, high: int = LARGEST) -> Field:
    """Return the field of an integer in a range."""
    return Field(f"an integer from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def number(low: float, high: float = math.inf) -> Field:
    """Return the field of a finite number in a range."""
    expectation = f"a number from {low} to {high}"
    return Field(expectation, lambda value: type(value) in (int, float) and low <= value <= min(high, LARGEST))


def text(pattern: str, expectation: str) -> Field:
    """Return the field of a text that a regular expression matches as a whole."""
    form = re.compile(pattern, re.DOTALL)
    return Field(expectation, lambda value: type(value) is str and form.fullmatch(value) is not None)


def one_of(choices: Collection[Any]) -> Field:
    """Return the field of a value with one of these values and its type."""
    expectation = f"one of {', '.join(map(repr, choices))}"
    return Field(expectation, lambda value: any(type(value) is type(one) and value == one for one in choices))


def optional(field: Field) -> Field:
    """Return a field that may also be null."""
    return Field(f"{field.expectation}, or null", lambda value: value is None or field.accepts(value))


CHECKSUM = integer(0, (1 << 32) - 1)


def check(value: Any, form: Form, name: str = "") -> None:
    """Raise ValueError that names the field if a value has not this form."""
    if isinstance(form, Field):
        if not form.accepts(value):
            raise ValueError(f"{name} must be {form.expectation}, got {value!r:.80}")
        return
    if not isinstance(value, type(form)):
        kind = "mapping" if isinstance(form, dict) else "list"
        raise ValueError(f"{name or 'the content'} must be a {kind}, got {value!r:.80}")
    if isinstance(form, list):
        for place, part in enumerate(value):
            check(part, form[0], f"{name}[{place}]")
        return
    forms = {field.removesuffix("?"): inner for field, inner in form.items()}
    start = f"{name}." if name else ""
    for field in form:
        if field not in value and not field.endswith("?"):
            raise ValueError(f"{start}{field} is missing")
    for field, part in value.items():
        if field not in forms:
            raise ValueError(f"{start}{field:.80} is unknown")
        check(part, forms[field], f"{start}{field}")


def parse_json(content: bytes) -> Any:
    """Return the value of a JSON text; ValueError for other texts."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


@contextmanager
def _naming(problem: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{problem}: {error}") from error


def read_record(folder: Path, name: str, kind: str, versions: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    """Return a record.

    Parameters
    ----------
    folder, name
        Folder and name of the file.
    kind
        Value of the field ``format``.
    versions
        Form of the other fields, by the value of the field ``version``.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is a link, no regular file or too large, has another format or version, or a field has a wrong
        value; names file and field.
    """
    path = path_within(folder, name, f"the folder {folder}")
    with open_regular(path) as file:
        content = file.read(_MOST_BYTES + 1)
    head = {"format": one_of([kind]), "version": integer(0)}
    with _naming(f"{path} is damaged"):
        record = parse_json(content) if len(content) <= _MOST_BYTES else None
        named = {field: record[field] for field in head if field in record} if isinstance(record, dict) else record
        check(named, head)
    version = record["version"]
    if version not in versions:
        known = " and ".join(map(str, versions))
        raise ValueError(f"{path} has version {version}, this cfe_faiss reads version {known}")
    with _naming(f"{path} is damaged"):
        check(record, head | versions[version])
    return cast(dict[str, Any], record)


def write_record(folder: Path, name: str, content: dict[str, Any], form: Form, *, like: Path | None = None) -> None:
    """Write a record in place of an older one; errors as of :func:`read_record`, and OSError."""
    path = path_within(folder, name, f"the folder {folder}")
    encoded = json.dumps(content, indent=1).encode()
    with _naming(f"{path} cannot be written"):
        check(content, form)
        if len(encoded) > _MOST_BYTES:
            raise ValueError(f"it would have {len(encoded)} bytes, at most {_MOST_BYTES} can be read")
    with new_file(path, overwrite=True, like=like) as file:
        file.write(encoded)
