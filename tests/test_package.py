import os
import subprocess
import sys
from importlib.metadata import metadata, version
from importlib.resources import files
from pathlib import Path

import faiss
import pytest

import cfe_faiss as cfe


def test_import_is_light_and_first_use_compiles_nothing():
    code = (
        "import sys, numpy as np, cfe_faiss as cfe\n"
        "heavy = {'torch', 'torch_geometric', 'pandas', 'matplotlib', 'networkx', 'sklearn', 'scipy.stats', 'rich'}\n"
        "heavy |= {'pyarrow', 'langchain_core', 'llama_index', 'haystack', 'scipy.sparse', 'scipy.special'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, f'loaded: {heavy}'\n"
        "rng = np.random.default_rng(0)\n"
        "X = cfe.ks_vectors(rng.normal(size=(300, 8)), rng.integers(300, size=(2, 900)))\n"
        "index = cfe.IndexEvidenceIVF(8, 10)\n"
        "index.train(X)\n"
        "index.add_with_labels(X, rng.integers(2, size=300))\n"
        "index.search_stored(k=3, recall=0.9), index.search_evidence(X[:1], [0], 3), cfe.global_evidence(index, 5)\n"
        "compilers = {'numba', 'llvmlite', 'cffi', 'cppyy', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {compilers}' if compilers else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_names_are_there_and_documented():
    for name in cfe.__all__:
        assert getattr(cfe, name) is not None
        if name not in (
            "__version__",
            "InputWarning",
            "metrics",
            "register",
            "show_versions",
            "unregister",
        ):
            text = getattr(cfe, name).__doc__
            assert "Parameters" in text or "Attributes" in text


def test_metadata():
    assert version("cfe-faiss") == cfe.__version__
    assert metadata("cfe-faiss")["License-Expression"] == "MIT"
    assert files("cfe_faiss").joinpath("py.typed").is_file()


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (["faiss_cpu-1.15.1.dist-info", "faiss_vectors-1.0.dist-info", "faiss_cpu.libs"], None),
        (
            ["faiss_cpu-1.15.1.dist-info", "faiss_gpu_cu12-1.13.0.dist-info"],
            ["faiss-cpu", "faiss-gpu-cu12"],
        ),
        (["faiss-1.14.0.dist-info", "faiss_cpu-1.15.1.dist-info"], ["faiss", "faiss-cpu"]),
    ],
)
def test_two_distributions_of_faiss_are_warned_of(tmp_path, folders, names):
    installed = Path(faiss.__file__).parents[1]
    for package in ("faiss", "faiss_cpu.libs"):
        if (installed / package).exists():
            (tmp_path / package).symlink_to(installed / package)
    for folder in folders:
        (tmp_path / folder).mkdir(exist_ok=True)
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-W", "error::RuntimeWarning", "-c", "import cfe_faiss"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if names is None:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        remedy = f"pip uninstall -y {' '.join(names)}; pip install {names[-1]}"
        assert f"{' and '.join(names)} are installed over each other in {tmp_path}" in done.stderr
        assert done.stderr.rstrip().endswith(remedy)
