"""What holds wherever the package is installed, and what a machine that cannot build it is told."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cfe_faiss
from cfe_faiss import _native

ROOT = Path(__file__).parents[1]

# The installed package may be found by a hook before the path: the copy is what is to be tested.
USE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
sys.path.insert(0, sys.argv[1])
import numpy as np
import cfe_faiss as cfe
from cfe_faiss import _native
assert cfe.__file__.startswith(sys.argv[1]) and _native.__file__.startswith(sys.argv[1])
try:
    open(sys.argv[1] + "/cfe_faiss/written", "w")
except PermissionError:
    pass
else:
    raise AssertionError("the package can be written to")
rng = np.random.default_rng(0)
X = cfe.ks_vectors(rng.normal(size=(300, 8)), rng.integers(300, size=(2, 900)))
index = cfe.IndexEvidenceIVF(8, 10)
index.train(X)
index.add_with_labels(X, rng.integers(2, size=300))
print(*index.search_stored([5], 2, nprobe=4)[1][0])
"""

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1


def _heed_permissions():
    """Run in the child before it becomes Python: root, too, may then not write where permissions forbid it."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)


@pytest.fixture
def read_only(tmp_path):
    """A folder that nobody may write to, with a copy of the package in it."""
    copy = tmp_path / "site" / "cfe_faiss"
    leave = shutil.ignore_patterns("__pycache__", "native", "*.so")
    shutil.copytree(Path(cfe_faiss.__file__).parent, copy, ignore=leave)
    shutil.copy(_native.__file__, copy)
    paths = [copy.parent, *copy.parent.rglob("*")]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    yield copy.parent
    for path in paths:
        path.chmod(path.stat().st_mode | 0o200)


@pytest.mark.skipif(
    sys.platform != "linux" and os.geteuid() == 0, reason="nothing is read-only for root"
)
@pytest.mark.parametrize(
    "home", [pytest.param(None, marks=pytest.mark.slow), "missing"]
)  # nobody may make it there
def test_read_only_installation_without_home(read_only, home):
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    if home is not None:
        environment["HOME"] = str(read_only / home)
    command = [sys.executable, "-c", USE, str(read_only)]
    options = {"env": environment, "preexec_fn": _heed_permissions, "cwd": "/"}
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.split()) == 2


clone = pytest.mark.skipif(
    not (ROOT / "Makefile").is_file(), reason="for a clone of the repository"
)


@clone
@pytest.mark.skipif(shutil.which("make") is None, reason="make is missing")
def test_make_says_what_to_install(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("find", "sh"):
        (tools / tool).symlink_to(str(shutil.which(tool)))
    make = str(shutil.which("make"))
    command = [make, "--no-print-directory", "demo", f"VENV={tmp_path / 'venv'}"]
    environment = {"PATH": str(tools)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    remedy = "install a compiler first (Debian: apt-get install g++)"
    assert done.stdout == f"cfe_faiss is built from C++: {remedy}\n"
    assert len(done.stderr.splitlines()) == 1  # make's own


@clone
@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is missing")
def test_cmake_says_what_to_install(tmp_path):
    command = ["cmake", "-S", str(ROOT / "cfe_faiss" / "native"), "-B", str(tmp_path)]
    environment = os.environ | {"CXX": "/nonexistent"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "install a compiler first (Debian: apt-get install g++)" in " ".join(done.stderr.split())
