"""Check that no code for one instruction set can replace code for another one, or for the baseline.

A function that several object files define, such as an instance of a standard template, is a weak
symbol. The linker keeps one definition for all callers, and that one may use AVX-512. So weak
symbols of the files that are compiled for one level must carry the name of the level's namespace.

Usage: python check_symbols.py BUILD_FOLDER
"""

import re
import subprocess
import sys
from pathlib import Path

_LEVEL = re.compile(r"cfe_(generic|avx2|avx512|neon)\.dir")
_WEAK = set("uvVwW")
_MACH_O = (b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xcf")


def weak_symbols(listing: str, mach_o: bool) -> list[str]:
    r"""Return the weak symbols that `nm -P`, or `nm -m` for Mach-O, lists.

    `nm -P` does not mark weak symbols of Mach-O files: they look like any other function.

    Examples
    --------
    >>> weak_symbols("_ZN3cfe4avx23sumEv W 0 10\nmain T 0 30\n", mach_o=False)
    ['_ZN3cfe4avx23sumEv']
    >>> weak_symbols("00 (__TEXT,__text) weak external __ZSt4sortv\n10 (__TEXT,__text) external _main\n", mach_o=True)
    ['__ZSt4sortv']
    """
    lines = [line.split() for line in listing.splitlines() if line.strip()]
    if mach_o:
        return [line[-1] for line in lines if "weak" in line[:-1]]
    return [line[0] for line in lines if line[1] in _WEAK]


def foreign_symbols(symbols: list[str], level: str) -> list[str]:
    """Return the symbols that do not carry the level's namespace.

    Examples
    --------
    >>> foreign_symbols(["_ZN3cfe4avx23sumEv", "_ZSt4sortIPfEvT_S1_"], "avx2")
    ['_ZSt4sortIPfEvT_S1_']
    """
    own = f"3cfe{len(level)}{level}"
    return [name for name in symbols if own not in name]


def main(folder: Path) -> str | None:
    """Return the complaints about the object files of a build folder; None if there are none."""
    complaints = []
    files = 0
    for path in sorted(folder.rglob("*.o")):
        level = _LEVEL.search(path.as_posix())
        if level is None:
            continue
        files += 1
        with path.open("rb") as file:
            mach_o = file.read(4) in _MACH_O
        command = ["nm", "-m" if mach_o else "-P", "--defined-only", str(path)]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        symbols = foreign_symbols(weak_symbols(listing, mach_o), level[1])
        complaints += [f"{path}: weak symbol outside of its level: {s}" for s in symbols]
    if files == 0:
        return f"no object files of a level below {folder}: build first"
    return "\n".join(complaints) or None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
