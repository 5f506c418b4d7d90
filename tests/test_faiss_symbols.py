"""Private symbols of FAISS's SWIG module are used in one module, so that a new version of FAISS concerns one module."""

import ast
from pathlib import Path

import pytest

import cfe_faiss
from cfe_faiss.rows.faiss_functions import raw

PACKAGE = Path(cfe_faiss.__file__).parent
HOME = "rows/faiss_functions.py"


def private_symbols(source):
    """Return the private symbols in a module: the compiled module, and what SWIG adds to its classes."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=module, names=names) if module is not None:
                if module.endswith("faiss_functions"):
                    found |= {name.name for name in names} & {"raw"}
                if "swigfaiss" in module or (
                    module == "faiss" and any("swigfaiss" in one.name for one in names)
                ):
                    found.add("swigfaiss")
            case ast.Import(names=names):
                found |= {"swigfaiss" for name in names if "swigfaiss" in name.name}
            case ast.Attribute(attr=name) if (
                name in ("this", "thisown") or "swigfaiss" in name or "__swig" in name
            ):
                found.add(name)
    return found


@pytest.mark.parametrize(
    ("source", "symbols"),
    [
        ("import faiss\nfaiss.swig_ptr(x)\nindex._faiss_lists()", set()),
        ("from faiss import swigfaiss_avx2", {"swigfaiss"}),
        ("import faiss._swigfaiss", {"swigfaiss"}),
        ("import faiss\nfaiss._swigfaiss.Index_ntotal_get(index.this)", {"_swigfaiss", "this"}),
        ("from cfe_faiss.rows.faiss_functions import raw, setting", {"raw"}),
        ("index.thisown = False\nindex.__swig_destroy__", {"thisown", "__swig_destroy__"}),
    ],
)
def test_private_symbols_are_found(source, symbols):
    assert private_symbols(source) == symbols


def test_private_symbols_are_used_in_one_module():
    used = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if symbols := private_symbols(path.read_text(encoding="utf-8")):
            used[name] = symbols
    assert used.keys() <= {HOME}, used


def test_symbols_that_are_used_are_checked_at_import():
    tree = ast.parse((PACKAGE / HOME).read_text(encoding="utf-8"))
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "raw"
    }
    assert used - {"__file__"} == vars(raw).keys() - {"__file__"}
