"""Checks that no code for one instruction set can stand in for code of another, or of the baseline.

A function that several object files define alike, such as an instance of a standard template, is a weak symbol: the
linker keeps any one of them, perhaps the one with AVX-512 instructions, for all callers. So weak symbols of the files
that are compiled for one level must belong to the level's own namespace, or at least carry its name in theirs.

Usage: python check_symbols.py BUILD_FOLDER
"""

import re
import subprocess
import sys
from pathlib import Path

_LEVEL = re.compile(r"cfe_(generic|avx2|avx512|neon)\.dir")
_WEAK = set("uvVwW")


def foreign_symbols(listing: str, level: str) -> list[str]:
    r"""Return the weak symbols that do not carry the level's name, of what ``nm -P --defined-only`` lists.

    Examples
    --------
    >>> foreign_symbols("_ZN3cfe4avx23sumEv W 0 10\n_ZSt4sortIPfEvT_S1_ W 0 20\nmain T 0 30\n", "avx2")
    ['_ZSt4sortIPfEvT_S1_']
    """
    own = f"3cfe{len(level)}{level}"
    found = []
    for line in listing.splitlines():
        name, kind = line.split()[:2]
        if kind in _WEAK and own not in name:
            found.append(name)
    return found


def main(folder: Path) -> str | None:
    """Return what is wrong with the object files of a build folder; None if nothing is."""
    complaints, files = [], 0
    for path in sorted(folder.rglob("*.o")):
        level = _LEVEL.search(path.as_posix())
        if level is None:
            continue
        files += 1
        command = ["nm", "-P", "--defined-only", str(path)]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        complaints += [f"{path}: weak symbol outside of its level: {s}" for s in foreign_symbols(listing, level[1])]
    if files == 0:
        return f"no object files of a level below {folder}: build first"
    return "\n".join(complaints) or None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
