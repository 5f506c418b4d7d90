"""What is written in two places of the repository is the same in both."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cfe_faiss as cfe

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not (ROOT / ".github").is_dir(), reason="for a clone of the repository"
)


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def pins():
    return dict(re.findall(r"^([\w.-]+)==(\S+)$", read("constraints.txt"), re.MULTILINE))


def test_citation_has_the_version():
    assert f"\nversion: {cfe.__version__}\n" in read("CITATION.cff")


def test_hooks_run_the_tools_that_checks_run():
    hooks = re.findall(
        r"additional_dependencies: \[([\w-]+)==([\d.]+)\]", read(".pre-commit-config.yaml")
    )
    assert {"ruff", "clang-format", "check-jsonschema"} <= {name for name, _ in hooks}
    assert {name: version for name, version in hooks if pins().get(name, version) != version} == {}


def test_each_extra_is_tried_before_a_release():
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    together = {"all", "integrations", "benchmarks", "test", "test-integrations", "docs", "dev"}
    for script in (".ci/smoke.py", ".ci/try_wheel.py"):
        assert {extra for extra in extras if f'"{extra}"' in read(script)} == set(extras) - together


def test_what_is_installed_directly_is_pinned():
    project = tomllib.loads(read("pyproject.toml"))["project"]
    wanted = {
        requirement for extra in project["optional-dependencies"].values() for requirement in extra
    }
    names = {
        re.match(r"[\w.-]+", requirement)[0]
        for requirement in wanted | set(project["dependencies"])
    }
    pinned = {re.sub(r"[-_.]+", "-", name).lower() for name in pins()}
    found = {name for name in names if re.sub(r"[-_.]+", "-", name).lower() not in pinned}
    assert found == {"cfe-faiss"}


def test_dependencies_without_faiss_are_documented():
    dependencies = tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]
    page = read("docs/getting_started/install.md")
    documented = re.search(
        r"^pip install --no-deps cfe-faiss\npip install ((?:.*\\\n)*.*)$", page, re.MULTILINE
    )
    others = [requirement for requirement in dependencies if not requirement.startswith("faiss")]
    assert documented is not None
    assert re.findall(r'"([^"]+)"', documented[1]) == others
    assert len(others) == len(dependencies) - 1


def test_torch_that_runs_code_from_files_is_refused():
    """``weights_only=True`` holds from version 2.10 on (CVE-2026-24747)."""
    extras = tomllib.loads(read("pyproject.toml"))["project"]["optional-dependencies"]
    (bound,) = (requirement for requirement in extras["gnn"] if re.match(r"torch\b", requirement))
    assert tuple(map(int, re.fullmatch(r"torch>=(\d+)\.(\d+)", bound).groups())) >= (2, 10)


def test_actions_are_pinned_by_commit_and_the_same_everywhere():
    versions = {}
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for action in re.findall(
            r"uses: (.+)$", workflow.read_text(encoding="utf-8"), re.MULTILINE
        ):
            if not action.startswith("./"):
                assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action
                versions.setdefault(action.partition("@")[0], set()).add(action)
    assert len(versions) > 5
    assert [name for name, used in versions.items() if len(used) > 1] == []


def test_version_check_finds_what_disagrees():
    command = [sys.executable, ROOT / ".ci" / "check_version.py", "v9.9.9"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"the tag says 9.9.9, the package {cfe.__version__}" in done.stderr
