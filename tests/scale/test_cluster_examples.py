"""The scripts of ``examples/cluster``: run on this machine, or compared with what they must say."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from ray_nodes import free_port, in_session, waited

from cfe_faiss.scale import Job

EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"
N, D = 3000, 8
SETTINGS = {"pairs": 20, "block_rows": 500}

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="for a clone of the repository")

SRUN = """#!/bin/sh
echo "$*" >> "$CALLS"
while [ "${1#--}" != "$1" ]; do shift; done
exec "$@"
"""
SCONTROL = """#!/bin/sh
[ "$*" = "show hostnames node[1-2]" ] && printf "127.0.0.1\\nnode2\\n"
"""


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    rng = np.random.default_rng(0)
    arrays = {
        "features": rng.normal(size=(N, D)),
        "edges": rng.integers(0, N, (2, 3 * N)),
        "labels": rng.integers(0, 2, N),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return {name: tmp_path / f"{name}.npy" for name in arrays}


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder for Ray, whose sockets must have short paths."""
    with tempfile.TemporaryDirectory(prefix="cfe-", dir="/tmp") as folder:
        yield Path(folder)


def run(script: str, inputs: dict[str, Path], folder: Path, **environment: str) -> None:
    """Run a script to its end, and see that nothing of it is left."""
    named = [part for name, value in inputs.items() for part in (f"--{name}", str(value))]
    bin_folder = str(Path(sys.executable).parent)
    path = os.pathsep.join(
        [*filter(None, [environment.pop("TOOLS", "")]), bin_folder, os.environ["PATH"]]
    )
    modules = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
    own = {
        "PATH": path,
        "PYTHONPATH": modules,
        "RAY_TMPDIR": str(folder.parent.resolve()),
        **environment,
    }
    process = subprocess.Popen(
        ["bash", EXAMPLES / script, "run", folder, *named, "--pairs", "20", "--block-rows", "500"],
        cwd=folder.parent,
        env={name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        | own,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    waited(lambda: in_session(process.pid) == [], 120)


def assert_as_local(inputs: dict[str, Path], folder: Path) -> None:
    local = folder.with_name("local")
    Job(local, **inputs, **SETTINGS).run(workers=1)
    for stage in ("vectors", "index", "evidence", "pairs"):
        for path in (local / stage).iterdir():
            assert (folder / stage / path.name).read_bytes() == path.read_bytes()


@pytest.mark.slow
def test_two_nodes_on_this_machine(inputs: dict[str, Path], short_folder: Path) -> None:
    pytest.importorskip("ray", reason='ray is missing: pip install "cfe-faiss[ray]"')
    run("two_nodes.sh", inputs, short_folder / "job", PORT=str(free_port()))
    assert "Ray runtime started" in (short_folder / "head.log").read_text()
    assert "Ray runtime started" in (short_folder / "second.log").read_text()
    assert_as_local(inputs, short_folder / "job")


@pytest.mark.slow
def test_the_slurm_script_with_a_slurm_of_this_machine(
    inputs: dict[str, Path], tmp_path: Path, short_folder: Path
) -> None:
    """``srun`` starts each step here, so both nodes are on this machine; the test checks its arguments."""
    pytest.importorskip("ray", reason='ray is missing: pip install "cfe-faiss[ray]"')
    tools, calls = tmp_path / "tools", tmp_path / "calls"
    tools.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    allocation = {"NODELIST": "node[1-2]", "ID": str(free_port() - 6400), "NUM_NODES": "2"}
    slurm = {f"SLURM_JOB_{name}": value for name, value in allocation.items()} | {
        "SLURM_CPUS_PER_TASK": "1"
    }
    run("slurm.sh", inputs, short_folder / "job", TOOLS=str(tools), CALLS=str(calls), **slurm)
    head, others = calls.read_text().splitlines()
    assert head.startswith("--nodes=1 --ntasks=1 --nodelist=127.0.0.1 ray start --num-cpus=1")
    assert others.startswith("--nodes=1 --ntasks=1 --exclude=127.0.0.1 ray start --num-cpus=1")
    assert_as_local(inputs, short_folder / "job")


def test_the_shell_takes_the_scripts() -> None:
    for script in EXAMPLES.glob("*.sh"):
        subprocess.run(["bash", "-n", script], check=True)


def test_the_command_of_kubernetes_is_one() -> None:
    yaml = pytest.importorskip("yaml")
    from cfe_faiss.cli.parser import PARSER

    name, *arguments = yaml.safe_load((EXAMPLES / "rayjob.yaml").read_text())["spec"][
        "entrypoint"
    ].split()
    assert name == "cfe-faiss"
    parsed = PARSER.parse_args(arguments)
    assert (parsed.executor, parsed.address) == ("ray", "auto")
    assert {
        path.parts[:2] for path in (parsed.directory, parsed.features, parsed.edges, parsed.labels)
    } == {("/", "data")}
