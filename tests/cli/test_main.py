import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import command, run_on_terminal

import cfe_faiss as cfe
from cfe_faiss.cli import main


def test_version_and_help(capsys):
    cases = ((["--version"], f"cfe-faiss {cfe.__version__}\n"), (["build", "--help"], "--features"))
    for arguments, expected in cases:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 0
        assert expected in capsys.readouterr().out


GRAPH = "build out --features x.npy --edges e.npy"
VECTORS = "build out --vectors x.npy --predictions y.npy"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "arguments are required: COMMAND"),
        ("search", "invalid choice: 'search'"),
        ("info", "arguments are required: INDEX .see cfe-faiss info --help."),
        ("info nowhere.cfe", r"nowhere\.cfe: No such file or directory"),
        ("info x.npy", "is not an evidence index, or was cut short"),
        ("info flat.cfe --csv", "unrecognized arguments: --csv; other commands have this option"),
        ("local flat.cfe --nodes a", "--nodes must be node numbers or a file, got a"),
        ("local flat.cfe --nodes 3", "nodes must be in the index, got 3, which is not"),
        ("local flat.cfe --json --csv", "argument --csv: not allowed with argument --json"),
        ("local flat.cfe --nprobe 2", "--nprobe has no effect with an exact index"),
        ("global ivf.cfe --nprobe 2", "--nprobe has no effect without --approximate"),
        ("build out", "one of the arguments --dataset --features --vectors is required"),
        ("build out --dataset x", "invalid choice: 'x'"),
        ("build out --dataset patients --vectors x.npy", "not allowed with argument"),
        ("build out --dataset patients --edges e.npy", "--edges has no effect without --features"),
        ("build out --dataset german --data-root nowhere", "files german.csv, german_edges.txt"),
        ("build out --dataset patients --predictions y.npy", r"y\.npy .*got 300"),
        ("build out --features x.npy --predictions y.npy --layers 2", "effect without --dataset"),
        ("bulid out", "did you mean 'build'"),
        ("audit data.csv", r"data\.csv; did you mean --features data\.csv\? \(see cfe-faiss audit"),
        ("audit --out a.html x.npy", r"arguments: x\.npy; did you mean --features x\.npy\?"),
        ("audit --features x.npy other.csv", r"arguments: other\.csv \(see cfe-faiss"),
        ("build x.npy out", r"unrecognized arguments: out; did you mean --features x\.npy\?"),
        ("build out --fetures x.npy", "did you mean '--features'"),
        ("local flat.cfe t.parquet", r"t\.parquet; did you mean --features t\.parquet\?"),
        ("info flat.cfe t.csv", r"unrecognized arguments: t\.csv \(see cfe-faiss info --help\)$"),
        ("scale run x.npy job", r"arguments: job; did you mean --features x\.npy\?"),
        ("build out --features x.npy --predictions y.npy --encoding latin-99", "encoding must"),
        ("local flat.cfe --exact sex", "--exact has no effect without --features"),
        (GRAPH, "--features needs --predictions"),
        (f"{GRAPH} --predictions x.npy", r"row 1: probabilities must lie in \[0, 1\]"),
        (f"{GRAPH} --predictions y.npy --nodes all", "--nodes has no effect"),
        ("build out --vectors x.npy", "--vectors needs --predictions"),
        (f"{VECTORS} --layers 2", "--layers has no effect without --dataset or"),
        ("build out --vectors y.npy --predictions y.npy", r"y\.npy must hold a matrix of shape"),
        ("build nowhere/out --dataset patients", "nowhere: there is no such folder"),
        ("build . --dataset patients", "is a folder"),
        ("build out --dataset patients --model mlp", "invalid choice: 'mlp'"),
        ("audit --features x.csv --model loan", "choice: 'loan' .*--predictions names"),
        (
            "build out --features x.csv --edges e.npy --predictions x.csv:clas",
            "--predictions .*'clas'",
        ),
        (
            "build out --features x.csv --edges e.npy --predictions y.npy --truth x.csv tru",
            "--truth .*'tru'",
        ),
        ("build out --dataset patients --model gat --predictions y.npy", "--model has no effect"),
        (f"{VECTORS} --model gcn", "--model has no effect with --"),
        ("local flat.cfe --nodes -1", r"nodes must lie in 0\.\.2\*\*63-2, got -1"),
        ("local flat.cfe -k 0", "k must be at least 1, got 0"),
        ("local ivf.cfe --nprobe 0", "nprobe must be at least 1, got 0"),
        ("build out --dataset patients --seed -1", "seed must be at least 0, got -1"),
        (f"{GRAPH} --predictions y.npy --alpha 2", r"alpha must lie in \[0, 1\]"),
        (f"{VECTORS} --index HNSW", "description must begin with"),
        (f"{VECTORS} --index EvidenceIVF999,Flat", "at least nlist = 999"),
        ("demo --out x.npy", r"x\.npy is a file that cfe_faiss has not written"),
    ],
)
def test_errors_are_one_line(folder, error, monkeypatch, line, expected):
    monkeypatch.chdir(folder)
    assert re.search(expected, error(*line.split()))
    assert not any((folder / name).exists() for name in ("out", "new"))


def test_process_searches(folder):
    done = command("global", folder / "flat.cfe", "-k", 3, "--json", capture_output=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)) == 3


def test_search_loads_nothing_heavy(folder):
    script = (
        "import sys; from cfe_faiss.cli import main\n"
        f"for line in (['info'], ['local', '--nodes', '0'], ['global']):\n"
        f"    assert main([line[0], {str(folder / 'flat.cfe')!r}, *line[1:]]) == 0\n"
        "heavy = {'torch', 'torch_geometric', 'matplotlib', 'networkx', 'sklearn', 'scipy.stats', 'rich'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_missing_extra_is_named(tmp_path):
    script = "import sys; sys.modules['torch'] = None; from cfe_faiss.cli import main; sys.exit(main(['demo']))"
    command_line = [sys.executable, "-c", script]
    done = subprocess.run(command_line, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'cfe-faiss: error: torch is missing: pip install "cfe-faiss[gnn]"\n'


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_full_disk_is_one_line(folder):
    with Path("/dev/full").open("w") as full:
        done = command("info", folder / "flat.cfe", stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert re.fullmatch(r"cfe-faiss: error: .*No space left on device\n", done.stderr)


WAIT_IN_LOAD = """
import numpy, runpy, time
numpy.load = lambda *_, **__: (print("reads", flush=True), time.sleep(60))
runpy.run_module("cfe_faiss", run_name="__main__")
"""


def test_interrupt_is_one_line(folder, tmp_path):
    files = ("--features", folder / "x.npy", "--edges", folder / "e.npy")
    files += ("--predictions", folder / "y.npy")
    arguments = [sys.executable, "-c", WAIT_IN_LOAD, "build", tmp_path / "out", *files]
    # A parent that ignores interrupts would pass that on.
    restore = lambda: signal.signal(signal.SIGINT, signal.default_int_handler)  # noqa: E731
    with subprocess.Popen(
        arguments, stdout=-1, stderr=-1, text=True, preexec_fn=restore
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reads\n"
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert process.communicate() == ("", "cfe-faiss: interrupted\n")
    assert process.returncode == 130
    assert not (tmp_path / "out").exists()


def test_demo_shows_progress_on_a_terminal(tmp_path):
    """Without a terminal, the fixture ``output`` finds none, as where test_build.py trains."""
    text = io.StringIO()
    shown, status = run_on_terminal(80, "demo", "--pairs", 1, "--out", tmp_path, output=text)
    assert status == 0
    assert text.getvalue().startswith("Data set patients")
    assert "Pair 1, similarity" in text.getvalue()
    assert shown.startswith("Loading patients")
    assert "Training" in shown
