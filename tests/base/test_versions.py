import os
import subprocess
import sys
from pathlib import Path

import faiss
import numpy as np
import pytest

import cfe_faiss as cfe
from cfe_faiss import _native
from cfe_faiss.base import extras, startup


def python(*arguments, **environment):
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=False
    )


def section(text, title):
    lines = text.split(f"\n{title}\n")[1].split("\n\n")[0].splitlines()
    return {name.strip(): fact for name, fact in (line.split(": ", 1) for line in lines)}


def test_show_versions(capsys):
    cfe.show_versions()
    text = capsys.readouterr().out
    assert all(len(line) < 200 for line in text.splitlines())
    system = section(text, "System")
    assert system["executable"] == sys.executable
    assert system["processor"]
    ours = section(text, "cfe_faiss")
    assert ours["version"] == cfe.__version__
    assert ours["instruction set"] == _native.level()
    assert ours["available"].split(", ") == _native.available_levels()
    assert section(text, "Dependencies")["faiss-cpu"] == faiss.__version__
    threads = section(text, "Threads")
    assert threads["faiss"] == str(faiss.omp_get_max_threads())
    assert any("blas" in name or "mkl" in name or "Accelerate" in name for name in threads)


def test_packages_that_are_missing_are_named(monkeypatch, capsys):
    requirements = [
        "numpy>=2.0",
        'no-such-package; extra == "gnn"',
        'no-such-tool>=1; extra == "dev"',
    ]
    monkeypatch.setattr(extras, "requires", lambda _: requirements)
    cfe.show_versions()
    found = section(capsys.readouterr().out, "Dependencies")
    assert found == {"numpy": np.__version__, "no-such-package": "not installed"}


@pytest.mark.parametrize("level", _native.available_levels())
def test_level_is_chosen_by_the_environment(level):
    done = python("-c", "import cfe_faiss; cfe_faiss.show_versions()", CFE_SIMD=level)
    ours = section(done.stdout, "cfe_faiss")
    assert (ours["instruction set"], ours["CFE_SIMD"]) == (level, level)


IMPOSSIBLE = f"CFE_SIMD must be one of {', '.join(_native.available_levels())}, which this machine has, got 'sse9'"


def test_impossible_level_is_an_import_error():
    done = python("-c", "import cfe_faiss", CFE_SIMD="sse9")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: {IMPOSSIBLE}"


@pytest.mark.parametrize("options", [["-m", "cfe_faiss"], ["-X", "utf8", "-m", "cfe_faiss"]])
def test_impossible_level_is_one_line_of_the_command(options):
    done = python(*options, "--version", CFE_SIMD="sse9")
    expected = (2, "", f"cfe-faiss: error: {IMPOSSIBLE}\n")
    assert (done.returncode, done.stdout, done.stderr) == expected


def test_missing_core_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "cfe_faiss._native", None)  # as if there were none
    with pytest.raises(ImportError, match="core of cfe_faiss is missing: install the package"):
        startup.load_core()


def test_core_of_another_version_is_refused(tmp_path):
    startup.check_interface(_native.INTERFACE, Path(startup.__file__).parents[1] / "_native.pyi")
    other = tmp_path / "_native.pyi"
    # an installation without stubs has nothing to compare
    startup.check_interface(_native.INTERFACE, other)
    other.write_text("def level() -> int: ...\n", encoding="utf-8")
    for compiled in (_native.INTERFACE, ""):  # "": compiled before there was a digest
        with pytest.raises(ImportError, match="Python code: install the package again"):
            startup.check_interface(compiled, other)
