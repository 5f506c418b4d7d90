"""JSON records in folders (``manifest.json``, ``job.json``), checked at read and write."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cfe_faiss.files.forms import ANY_MAPPING, NATURAL, check, integer, one_of
from cfe_faiss.files.outputs import new_file, path_within
from cfe_faiss.files.regular import open_regular

_SIZE = integer(0, 1 << 28)


@contextmanager
def _naming(problem: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{problem}: {error}") from error


@dataclass(frozen=True, slots=True)
class Record:
    """Kind of a record.

    Attributes
    ----------
    name
        Name of the file.
    kind
        Value of the field ``format``.
    forms
        Form of the other fields, by the value of the field ``version``.
    """

    name: str
    kind: str
    forms: dict[int, dict[str, Any]]

    def read(self, folder: Path) -> dict[str, Any]:
        """Return the record in a folder.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is a link, no regular file or too large, has another format or version, or a
            field has a wrong value; names file and field.
        """
        path = path_within(folder, self.name, f"the folder {folder}")
        with open_regular(path) as file, _naming(f"{path} is damaged"):
            check(os.fstat(file.fileno()).st_size, _SIZE, "its size")
            record: dict[str, Any] = json.loads(file.read())
            check(record, ANY_MAPPING)
            head = {"format": one_of([self.kind]), "version": NATURAL}
            for name, field in head.items():
                check(record.get(name), field, name)
            version: int = record["version"]
            if version in self.forms:
                check(record, head | self.forms[version])
                return record
        known = " and ".join(map(str, self.forms))
        raise ValueError(f"{path} has version {version}, this cfe_faiss reads version {known}")

    def write(
        self, folder: Path, version: int, content: dict[str, Any], like: Path | None = None
    ) -> None:
        """Write a record in place of an older one; errors as of :meth:`read`, and OSError."""
        path = path_within(folder, self.name, f"the folder {folder}")
        encoded = json.dumps(
            {"format": self.kind, "version": version, **content}, indent=1
        ).encode()
        with _naming(f"{path} cannot be written"):
            check(content, self.forms[version])
            check(len(encoded), _SIZE, "its size")
        with new_file(path, overwrite=True, like=like) as file:
            file.write(encoded)
