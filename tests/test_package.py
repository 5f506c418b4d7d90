import subprocess
import sys
from importlib.metadata import metadata, version
from importlib.resources import files

import cfe_faiss as cfe


def test_import_is_light() -> None:
    code = (
        "import sys, cfe_faiss\n"
        "heavy = {'torch', 'torch_geometric', 'pandas', 'matplotlib', 'networkx', 'sklearn', 'scipy.stats', 'rich'}\n"
        "heavy |= {'pyarrow', 'langchain_core', 'llama_index', 'haystack'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_compiled_at_first_use() -> None:
    code = (
        "import sys, numpy as np, cfe_faiss as cfe\n"
        "rng = np.random.default_rng(0)\n"
        "X = cfe.ks_vectors(rng.normal(size=(300, 8)), rng.integers(300, size=(2, 900)))\n"
        "index = cfe.IndexEvidenceIVF(8, 10)\n"
        "index.train(X)\n"
        "index.add_with_labels(X, rng.integers(2, size=300))\n"
        "index.search_members(k=3, recall=0.9), index.search_evidence(X[:1], [0], 3), cfe.global_evidence(index, 5)\n"
        "compilers = {'numba', 'llvmlite', 'cffi', 'cppyy', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {compilers}' if compilers else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_names_are_there_and_documented() -> None:
    for name in cfe.__all__:
        assert getattr(cfe, name) is not None
        if name not in ("__version__", "InputWarning", "metrics", "show_versions"):
            assert "Parameters" in getattr(cfe, name).__doc__ or "Attributes" in getattr(cfe, name).__doc__


def test_metadata() -> None:
    assert version("cfe-faiss") == cfe.__version__
    assert metadata("cfe-faiss")["License-Expression"] == "MIT"
    assert files("cfe_faiss").joinpath("py.typed").is_file()
