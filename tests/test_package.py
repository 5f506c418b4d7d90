import subprocess
import sys
from importlib.metadata import metadata, version
from importlib.resources import files

import cfe_faiss as cfe


def test_import_is_light() -> None:
    code = (
        "import sys, cfe_faiss\n"
        "heavy = {'torch', 'torch_geometric', 'pandas', 'matplotlib', 'networkx', 'sklearn'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_names_are_there_and_documented() -> None:
    for name in cfe.__all__:
        assert getattr(cfe, name) is not None
        if name not in ("__version__", "metrics", "show_versions"):
            assert "Parameters" in getattr(cfe, name).__doc__ or "Attributes" in getattr(cfe, name).__doc__


def test_metadata() -> None:
    assert version("cfe-faiss") == cfe.__version__
    assert metadata("cfe-faiss")["License-Expression"] == "MIT"
    assert files("cfe_faiss").joinpath("py.typed").is_file()
