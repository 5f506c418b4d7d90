"""The pages of the architecture name files and functions that there are."""

import re
import tomllib
from pathlib import Path

import pytest

import cfe_faiss

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("architecture", "architecture_audits")]
PACKAGE = Path(cfe_faiss.__file__).parent

pytestmark = pytest.mark.skipif(
    not PAGES[0].is_file() or not (PACKAGE / "native").is_dir(),
    reason="for a clone of the repository",
)


def text():
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def find(path):
    """Return the files or folders that a path of the page stands for: in the package, its core, or the repository."""
    return [
        place
        for base in (PACKAGE, PACKAGE / "native", ROOT)
        for place in base.glob(path.rstrip("/"))
    ]


def test_files_are_there():
    paths = set(re.findall(r"`([\w*]+(?:/[\w.*]+)+/?|\w+\.(?:py|pyi|h|cpp|toml)|\w+/)`", text()))
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not find(path)] == []


def test_names_are_there():
    sources = [path for end in ("py", "pyi", "h", "cpp") for path in PACKAGE.rglob(f"*.{end}")]
    words = {
        word for path in sources for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    }
    words |= {path.stem for path in sources}
    words |= set(
        re.findall(
            r"[\w-]+", (ROOT / "pyproject.toml").read_text() + (ROOT / "Makefile").read_text()
        )
    )
    named = {
        name
        for code in re.findall(r"`([^`]+)`", text())
        for name in re.findall(r"[A-Za-z_]\w+", code)
    }
    assert len(named) > 60
    assert sorted(named - words - {"cfe_faiss", "cpp", "py", "pyi", "md", "toml"}) == []


def test_the_picture_has_the_layers_of_the_contract_of_imports():
    picture = (ROOT / "docs" / "_static" / "layers.svg").read_text(encoding="utf-8")
    shown = re.findall(r'class="name" x="[\d.]+" y="\d+">(\w+)<', picture)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    modules = {module for layer in layers for module in layer.split(" | ")}
    assert sorted(shown) == sorted(modules - {"__main__"} | {"FAISS"})


def test_names_are_in_the_files_that_are_said():
    said = re.findall(
        r"`([\w.:]+)`(?: keeps it)? \(`([\w/]+\.(?:py|h|cpp))`", " ".join(text().split())
    )
    assert len(said) > 15
    for name, path in said:
        last = re.split(r"\.|::", name)[-1]
        assert any(
            re.search(rf"\b{last}\b", place.read_text(encoding="utf-8")) for place in find(path)
        ), (name, path)
