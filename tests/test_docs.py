"""What the site's pages show runs, and its reference names every public name once."""

import ast
import asyncio
import doctest
import importlib
import inspect
import io
import os
import pydoc
import re
import shlex
import string
import subprocess
import sys
import textwrap
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from cfe_faiss.cli import main

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
GENERATED = {"generated", "gallery"}
PAGES = [
    page
    for page in sorted(DOCS.rglob("*.md"))
    if not GENERATED.intersection(page.relative_to(DOCS).parts)
] + sorted(ROOT.glob("*.md"))
BLOCK = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,})(?P<language>python|sh)\n(?P<code>.*?)^(?P=indent)(?P=fence)$"
    r"|^<!-- setup\n(?P<setup>.*?)^-->$|^<!-- not run: (?P<reason>.+?) -->$",
    re.DOTALL | re.MULTILINE,
)
# Pages that train models or write reports: `make docs` and `make slow` run them.
LONG = {
    f"docs/{name}.md"
    for name in ("getting_started/auditor", "how_to/explainer", "how_to/fine_tuning")
}
LONG |= {f"docs/user_guide/{name}.md" for name in ("audit", "indexes", "report")}
INSTALLS = ("pip install ", "apt-get install ", "make ", ".venv/bin/pre-commit ")

pytestmark = pytest.mark.skipif(
    not (DOCS / "conf.py").is_file(), reason="for a clone of the repository"
)


@dataclass(frozen=True)
class Block:
    """A code block of a page, in the order of the page: language "python", "sh" or "setup" (hidden Python)."""

    line: int
    language: str
    code: str

    @property
    def is_session(self):
        return self.code.lstrip().startswith(">>>")


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    """Return the blocks of a page that are run: all but those under a comment "not run: REASON"."""
    text = page.read_text(encoding="utf-8")
    found, skipped = [], False
    for match in BLOCK.finditer(text):
        language = match["language"] or ("setup" if match["setup"] else "")
        if language and not skipped:
            group = "setup" if language == "setup" else "code"
            line = text.count("\n", 0, match.start(group)) + 1
            found.append(Block(line, language, textwrap.dedent(match[group])))
        skipped = match["reason"] is not None
    return found


def needs(text):
    """Return the modules of the page's front matter, ``needs: NAME NAME``."""
    found = re.match(r"---\n(?:.*\n)*?needs: *(.*)\n(?:.*\n)*?---\n", text)
    return found[1].split() if found else []


def run_session(block, names, page):
    test = doctest.DocTestParser().get_doctest(block.code, {}, page.name, str(page), block.line - 1)
    test.globs = names
    complaints = []
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(optionflags=options).run(test, out=complaints.append, clear_globs=False)
    if complaints:
        pytest.fail("".join(complaints), pytrace=False)


def run_python(block, names, page):
    code = compile(
        block.code, f"{page}, block of line {block.line}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    )
    result = eval(code, names)
    if inspect.iscoroutine(result):
        asyncio.run(result)


def run_sh(block, page):
    """Run the commands of a block, without those that install something.

    Commands of cfe-faiss alone, and variables for them, run in this process, which has loaded the packages once. Bash
    runs other blocks.
    """
    lines = block.code.replace("\\\n", " ").splitlines()
    commands = [line for line in lines if not line.startswith(INSTALLS)]
    if not all(re.match(r"cfe-faiss |\w+=", command) for command in commands):
        run_bash("\n".join(commands), block, page)
        return
    variables = {}
    for command in commands:
        words = shlex.split(string.Template(command).substitute(variables), comments=True)
        if words[0] != "cfe-faiss":
            name, _, variables[name] = words[0].partition("=")
            continue
        words, target = (words[:-2], words[-1]) if words[-2] == ">" else (words, None)
        with redirect_stdout(io.StringIO()) as output, redirect_stderr(io.StringIO()) as errors:
            status = main(words[1:])
        if status:
            pytest.fail(
                f"{page}, line {block.line}: exit code {status}\n{errors.getvalue()}", pytrace=False
            )
        if target is not None:
            Path(target).write_text(output.getvalue(), encoding="utf-8")


def run_bash(commands, block, page):
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        place = f"{page}, line {block.line}: exit code {done.returncode}"
        pytest.fail(f"{place}\n{done.stdout}{done.stderr}", pytrace=False)


@pytest.mark.usefixtures("shared_workers", "without_sync")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page, id=name_of(page), marks=[pytest.mark.slow] if name_of(page) in LONG else []
        )
        for page in PAGES
        if blocks(page)
    ],
)
def test_code_runs(page, tmp_path, monkeypatch):
    for module in needs(page.read_text(encoding="utf-8")):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "sh":
            run_sh(block, page)
        elif block.is_session:
            run_session(block, names, page)
        else:
            run_python(block, names, page)


def test_blocks_that_are_not_run_say_why():
    reasons = {
        name_of(page): re.findall(r"<!-- not run: (.*?) -->", page.read_text(encoding="utf-8"))
        for page in PAGES
    }
    assert {
        name: reason for name, found in reasons.items() for reason in found if len(reason) < 10
    } == {}
    assert sum(map(len, reasons.values())) < 10


def listed():
    """Return the full names in the autosummary lists of the reference."""
    names = []
    for page in sorted((DOCS / "reference").glob("*.md")):
        for block in re.findall(
            r"```\{eval-rst\}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL
        ):
            module = re.search(r"currentmodule:: (\S+)", block)
            assert module is not None, f"{page}: a list without a currentmodule"
            items = block.partition(":toctree:")[2].splitlines()[1:]
            names += [f"{module[1]}.{item.strip()}" for item in items if item.strip()]
    return names


def test_each_name_is_listed_once():
    twice = [name for name, count in Counter(listed()).items() if count > 1]
    assert twice == []


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name in listed()}))
def test_listed_names_are_there(module):
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        pytest.skip(str(error))
    names = [name.rpartition(".")[2] for name in listed() if name.rpartition(".")[0] == module]
    assert [name for name in names if not hasattr(found, name)] == []


def public_modules():
    """Return the modules that users import by name and that say what is public in them."""
    integrations = [
        f"cfe_faiss.integrations.{path.parent.name if path.name == '__init__.py' else path.stem}"
        for pattern in ("[!_]*.py", "*/__init__.py")
        for path in sorted((ROOT / "cfe_faiss" / "integrations").glob(pattern))
        if "__all__" in path.read_text(encoding="utf-8")
    ]
    parts = ["", ".audit", ".models", ".datasets", ".datasets.own"]
    return [f"cfe_faiss{part}" for part in parts] + integrations


@pytest.mark.parametrize("module", public_modules())
def test_public_names_are_listed(module):
    try:
        names = importlib.import_module(module).__all__
    except ImportError as error:
        pytest.skip(str(error))
    assert [name for name in names if f"{module}.{name}" not in listed()] == []


# numpydoc's codes for what is wrong in any docstring: sections unknown or out of order, parameters that do not exist or
# are documented wrongly, a summary that is missing or longer than a line. (Types are in signatures, hence no PR04.)
WRONG = {f"GL{number}" for number in ("03", "06", "07", "08", "10")} | {"YD01"}
WRONG |= {f"PR{number}" for number in ("02", "05", "06", "07", "08", "09", "10")}
WRONG |= {"RT02", "RT05", "SS02", "SS03", "SS04", "SS05", "SS06"}


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name in listed()}))
def test_docstrings_are_numpydoc(module):
    validate = pytest.importorskip("numpydoc.validate").validate
    try:
        importlib.import_module(module)
    except ImportError as error:
        pytest.skip(str(error))
    names = [name for name in listed() if name.rpartition(".")[0] == module]
    complaints = [(name, *error) for name in names for error in validate(name)["errors"]]
    # its decorator hides the constructor's parameters
    hidden = {"PR02"} if module.endswith(".haystack") else set()
    assert [complaint for complaint in complaints if complaint[1] in WRONG - hidden] == []


def functions(name):
    """Return the function of that name, or the public methods of the class, by their full names."""
    module, _, item = name.rpartition(".")
    found = getattr(importlib.import_module(module), item)
    if not inspect.isclass(found):
        return {name: found} if callable(found) else {}
    members = (
        (member, getattr(found, member)) for member in dir(found) if not member.startswith("_")
    )
    ours = (
        (member, value)
        for member, value in members
        if getattr(value, "__module__", "").startswith("cfe_faiss")
    )
    return {f"{name}.{member}": value for member, value in ours if inspect.isroutine(value)}


@pytest.mark.parametrize("module", sorted({name.rpartition(".")[0] for name in listed()}))
def test_help_has_60_lines_at_most(module):
    names = [name for name in listed() if name.rpartition(".")[0] == module]
    try:
        found = {full: value for name in names for full, value in functions(name).items()}
    except ImportError as error:
        pytest.skip(str(error))
    # The signature counts as one line: from Python 3.13 on, pydoc breaks it where it is wide.
    lines = {
        full: len((inspect.getdoc(value) or "").splitlines()) + 3 for full, value in found.items()
    }
    assert {full: count for full, count in lines.items() if count > 60} == {}


@pytest.mark.parametrize(
    "name", ["EvidenceFinder.from_data", "IndexEvidenceIVF.search_evidence", "ks_vectors"]
)
def test_help_names_unions(name):
    text = pydoc.render_doc(f"cfe_faiss.{name}", renderer=pydoc.plaintext)
    assert "ArrayLike" in text
    assert "_array_like" not in text
