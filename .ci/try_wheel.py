"""Install the wheel in clean environments, and try it there: in each Python at hand, and with each extra.

python .ci/try_wheel.py dist [--pythons PYTHON...] [--extras EXTRA...]

Without --pythons, python3.11 and later ones are taken from the PATH; those that do not run, or have no venv, are left
out and named. Extras are tried in the Python that runs this, without --extras each of them.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
USABLE = "import sys, venv, ensurepip; print(*sys.version_info[:3], sep='.'); sys.exit(sys.version_info < (3, 11))"
EXTRAS = ["plot", "audit", "store", "gnn", "langchain", "llama-index", "haystack", "ray"]
NAMES = [f"python3.{minor}" for minor in range(11, 16)]


def usable(python: str) -> bool:
    """Return whether an interpreter can make environments; say so where it is there and cannot."""
    try:
        done = subprocess.run([python, "-c", USABLE], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        print(f"left out: {python} (not found)", flush=True)
        return False
    if done.returncode:
        said = [line for line in f"{done.stderr}\n{done.stdout}".splitlines() if line.strip()]
        reason = (
            said[-1 if said[0].startswith("Traceback") else 0]
            if said
            else f"exit status {done.returncode}"
        )
        print(f"left out: {python} ({reason})", flush=True)
    return done.returncode == 0


def attempt(python: str, wheel: Path, extras: list[str]) -> bool:
    """Install the wheel with extras in a new environment, try it there, and return whether all went well."""
    what = f"{Path(wheel).name}[{','.join(extras)}]" if extras else wheel.name
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", f"{folder}/env"], check=True)
        inside, empty = f"{folder}/env/bin/python", Path(folder, "empty")
        empty.mkdir()
        requirement = f"{wheel}[{','.join(extras)}]" if extras else str(wheel)
        install = [
            inside,
            "-m",
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "-c",
            ROOT / "constraints.txt",
        ]
        smoke = [inside, "-I", ROOT / ".ci" / "smoke.py", *extras]
        environment = os.environ | {"PATH": f"{folder}/env/bin{os.pathsep}{os.environ['PATH']}"}
        for command in ([*install, "--only-binary", ":all:", requirement], smoke):
            if subprocess.run(command, cwd=empty, env=environment, check=False).returncode:
                print(f"FAILED: {python}, {what}", flush=True)
                return False
    print(f"works: {python}, {what}, {time.monotonic() - started:.0f} s", flush=True)
    return True


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pythons", nargs="*", default=NAMES)
    parser.add_argument("--extras", nargs="*", default=EXTRAS, choices=EXTRAS)
    arguments = parser.parse_args()
    (wheel,) = arguments.folder.resolve().glob("*.whl")
    pythons = [python for python in arguments.pythons if usable(python)]
    if not pythons:
        sys.exit("no Python to try the wheel in: name some with --pythons")
    results = [attempt(python, wheel, []) for python in pythons]
    results += [attempt(sys.executable, wheel, [extra]) for extra in arguments.extras]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
