"""What the site's pages show runs, and its reference names every public name once."""

import ast
import doctest
import importlib
import re
import textwrap
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = {"generated", "gallery"}
PAGES = [
    page for page in sorted(DOCS.rglob("*.md")) if not GENERATED.intersection(page.relative_to(DOCS).parts)
] + sorted(ROOT.glob("*.md"))
FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})python\n(?P<code>.*?)^(?P=indent)(?P=fence)$", re.DOTALL | re.MULTILINE
)

pytestmark = pytest.mark.skipif(not (DOCS / "conf.py").is_file(), reason="for a clone of the repository")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(text: str) -> list[tuple[int, str]]:
    """Return the Python blocks of a page, each with the number of its first line."""
    return [
        (text.count("\n", 0, found.start("code")) + 1, textwrap.dedent(found["code"])) for found in FENCE.finditer(text)
    ]


def is_session(code: str) -> bool:
    return code.lstrip().startswith(">>>")


def needs(text: str) -> list[str]:
    """Return the modules that the page says its blocks need: ``needs:`` in its front matter."""
    found = re.match(r"---\n(?:.*\n)*?needs: *(.*)\n(?:.*\n)*?---\n", text)
    return found[1].split() if found else []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text(encoding="utf-8")
    sessions = [(line, code) for line, code in blocks(text) if is_session(code)]
    if not sessions:
        pytest.skip("no code that is to be run")
    for module in needs(text):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    parser, options = doctest.DocTestParser(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    examples = []
    for line, code in sessions:
        for example in parser.get_examples(code):
            example.lineno += line - 1
            examples.append(example)
    test = doctest.DocTest(examples, {"__name__": "__main__"}, page.name, str(page), 0, text)
    complaints: list[str] = []
    doctest.DocTestRunner(optionflags=options).run(test, out=complaints.append)
    if complaints:
        pytest.fail("".join(complaints), pytrace=False)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_other_code_compiles(page: Path) -> None:
    for line, code in blocks(page.read_text(encoding="utf-8")):
        if not is_session(code):
            compile(code, f"{page}, line {line}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def listed() -> list[str]:
    """Return the full names in the autosummary lists of the reference."""
    names = []
    for page in sorted((DOCS / "reference").glob("*.md")):
        for block in re.findall(r"```\{eval-rst\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            module = re.search(r"currentmodule:: (\S+)", block)
            assert module is not None, f"{page}: a list without a currentmodule"
            items = block.partition(":toctree:")[2].splitlines()[1:]
            names += [f"{module[1]}.{item.strip()}" for item in items if item.strip()]
    return names


def test_each_name_is_listed_once() -> None:
    twice = [name for name, count in Counter(listed()).items() if count > 1]
    assert twice == []


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name in listed()}))
def test_listed_names_are_there(module: str) -> None:
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        pytest.skip(str(error))
    names = [name.rpartition(".")[2] for name in listed() if name.rpartition(".")[0] == module]
    assert [name for name in names if not hasattr(found, name)] == []


def public_modules() -> list[str]:
    """Return the modules that users import by name and that say what is public in them."""
    integrations = [
        f"cfe_faiss.integrations.{path.stem}"
        for path in sorted((ROOT / "cfe_faiss" / "integrations").glob("[!_]*.py"))
        if "__all__" in path.read_text(encoding="utf-8")
    ]
    parts = ["", ".audit", ".models", ".datasets", ".datasets.own"]
    return [f"cfe_faiss{part}" for part in parts] + integrations


@pytest.mark.parametrize("module", public_modules())
def test_public_names_are_listed(module: str) -> None:
    try:
        names = importlib.import_module(module).__all__
    except ImportError as error:
        pytest.skip(str(error))
    assert [name for name in names if f"{module}.{name}" not in listed()] == []


# numpydoc's codes for what is wrong in any docstring: sections unknown or out of order, parameters that do not exist or
# are documented wrongly, a summary that is missing or longer than a line. (Types are in signatures, hence no PR04.)
WRONG = {"GL03", "GL06", "GL07", "GL08", "GL10", "PR02", "PR05", "PR06", "PR07", "PR08", "PR09", "PR10"}
WRONG |= {"RT02", "RT05", "SS02", "SS03", "SS04", "SS05", "SS06", "YD01"}


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name in listed()}))
def test_docstrings_are_numpydoc(module: str) -> None:
    validate = pytest.importorskip("numpydoc.validate").validate
    try:
        importlib.import_module(module)
    except ImportError as error:
        pytest.skip(str(error))
    names = [name for name in listed() if name.rpartition(".")[0] == module]
    complaints = [(name, *error) for name in names for error in validate(name)["errors"]]
    assert [complaint for complaint in complaints if complaint[1] in WRONG] == []
