"""Check what the wheels and the source distribution in a folder hold, against the files that git knows.

python .ci/check_dist.py dist
"""

import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
VERSION = re.search(
    r'^__version__ = "(.+)"$', (ROOT / "cfe_faiss/__init__.py").read_text(encoding="utf-8"), re.M
)[1]
NOT_IN_SDIST = (".ci/", ".github/", ".pre-commit-config.yaml")


def tracked() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.splitlines())


def differences(what: str, found: set[str], expected: set[str]) -> list[str]:
    missing = [f"{what}: {name} is missing" for name in sorted(expected - found)]
    return missing + [f"{what}: {name} does not belong there" for name in sorted(found - expected)]


def check_wheel(path: Path) -> list[str]:
    info = f"cfe_faiss-{VERSION}.dist-info"
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if not name.endswith("/")}
        own = {name for name in names if not name.startswith(info)}
        expected = {
            n
            for n in tracked()
            if n.startswith("cfe_faiss/") and not n.startswith("cfe_faiss/native/")
        }
        wrong = differences(path.name, own, expected | {"cfe_faiss/_native.abi3.so"})
        metadata = message_from_bytes(wheel.read(f"{info}/METADATA"))
        tags = message_from_bytes(wheel.read(f"{info}/WHEEL")).get_all("Tag")
        if "[console_scripts]\ncfe-faiss" not in wheel.read(f"{info}/entry_points.txt").decode():
            wrong.append(f"{path.name}: the command cfe-faiss is missing")
    if not any(name.startswith(f"{info}/licenses/") for name in names):
        wrong.append(f"{path.name}: the licence is missing")
    if not all(tag.startswith("cp311-abi3-") for tag in tags):
        wrong.append(f"{path.name}: tags must be of the stable ABI, got {tags}")
    if any(re.search(r"linux_(x86_64|aarch64)$", tag) and "manylinux" not in tag for tag in tags):
        wrong.append(f"{path.name}: a wheel for Linux must be a manylinux wheel, got {tags}")
    return wrong + check_metadata(path.name, metadata)


def check_metadata(what: str, metadata: Message) -> list[str]:
    wrong = []
    if metadata["Version"] != VERSION:
        wrong.append(f"{what}: version {metadata['Version']}, but __version__ is {VERSION}")
    if not (metadata.get_payload() or "").strip():
        wrong.append(f"{what}: the description is empty")
    return wrong


def check_sdist(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        files = [member for member in archive.getmembers() if not member.isdir()]
        names = {str(PurePosixPath(*PurePosixPath(member.name).parts[1:])) for member in files}
        metadata = message_from_bytes(archive.extractfile(f"cfe_faiss-{VERSION}/PKG-INFO").read())
        odd = [
            f"{path.name}: {member.name} is not a plain file"
            for member in files
            if not member.isfile()
        ]
    expected = {name for name in tracked() if not name.startswith(NOT_IN_SDIST)}
    return (
        differences(path.name, names, expected | {"PKG-INFO"})
        + odd
        + check_metadata(path.name, metadata)
    )


def main(folder: Path) -> None:
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    if not wheels or len(sdists) != 1:
        sys.exit(
            f"{folder} must hold wheels and one source distribution, got {[p.name for p in folder.iterdir()]}"
        )
    wrong = [line for path in wheels for line in check_wheel(path)] + check_sdist(sdists[0])
    if wrong:
        sys.exit("\n".join(wrong))
    for path in (*wheels, *sdists):
        print(
            f"{path.name}: {path.stat().st_size / 2**20:.1f} MiB, its files are those of the repository"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
