"""Check that a tag, the package's version, the citation and the changelog agree: python3 .ci/check_version.py [TAG]."""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def found(pattern: str, name: str) -> str | None:
    match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    return match and match[1]


def main(tag: str | None) -> None:
    version = found(r'^__version__ = "(.+)"$', "cfe_faiss/__init__.py")
    told = {
        "CITATION.cff": found(r"^version: (.+)$", "CITATION.cff"),
        # The newest section, but for what is not released yet.
        "CHANGELOG.md": found(r"^## \[?(\d[^\] ]*)", "CHANGELOG.md"),
    }
    if tag is not None:
        told["the tag"] = tag.removeprefix("v")
    wrong = [
        f"{name} says {other}, the package {version}"
        for name, other in told.items()
        if other != version
    ]
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"version {version}, in {', '.join(told)}, too")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
