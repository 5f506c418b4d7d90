"""No command writes to a file that it reads, nor to one that this package has not written."""

import os
from pathlib import Path

import pytest

from cfe_faiss.cli import main

FILES = ["--features", "--predictions", "--nodes", "--edges", "--truth", "--split", "--data-root"]
LINES = [
    *(f"audit --features other --out TARGET {name} SOURCE" for name in [*FILES, "--compare"]),
    *(f"audit --features other --figures TARGET {name} SOURCE" for name in [*FILES, "--compare"]),
    *(f"case other --features other --out TARGET {name} SOURCE" for name in FILES),
    *(f"build TARGET --features other {name} SOURCE" for name in FILES),
    *(
        f"plot other other --features other --out TARGET {name} SOURCE"
        for name in FILES
        if name != "--nodes"
    ),
    "plot SOURCE other --features other --out TARGET",
    "build TARGET --vectors SOURCE",
    "demo --out TARGET --data-root SOURCE",
    "scale run TARGET --features SOURCE --edges other --labels other",
    "scale run TARGET --features other --edges SOURCE --labels other",
    "scale run TARGET --features other --csr SOURCE SOURCE --labels other",
    "scale run TARGET --features other --edges other --labels SOURCE",
    "scale run TARGET --features other --edges other --labels other --edge-weight SOURCE",
]
WAYS = ["same", "relative", "link", "hard link", "overwrite"]
# By default, each as it is and in one of the other ways.
CASES = [
    pytest.param(line, way, marks=[] if way in ("same", WAYS[1 + i % 4]) else [pytest.mark.slow])
    for i, line in enumerate(LINES)
    for way in WAYS
]


@pytest.mark.parametrize(("line", "way"), CASES)
def test_no_output_is_an_input(line, way, tmp_path, monkeypatch, error):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "mine.csv"
    if "--data-root SOURCE" in line:
        source.mkdir()
        if way == "hard link":
            pytest.skip("folders have none")
    else:
        source.write_text("id,sex\n1,f\n")
    target = {"relative": Path("mine.csv"), "same": source, "overwrite": source}.get(
        way, tmp_path / "other name"
    )
    if way == "link":
        target.symlink_to(source)
    elif way == "hard link":
        os.link(source, target)
    before = set(tmp_path.iterdir())
    words = [{"SOURCE": source, "TARGET": target}.get(word, word) for word in line.split()]
    message = error(*words, *(["--overwrite"] if way == "overwrite" else []))
    assert message.startswith(f"cfe-faiss: error: {target} is an input of this call ")
    assert source.is_dir() or source.read_text() == "id,sex\n1,f\n"
    assert set(tmp_path.iterdir()) == before


def test_the_report_of_a_table_does_not_replace_it(own_folder, monkeypatch, capsys):
    monkeypatch.chdir(own_folder.path)
    before = (own_folder.path / "people.csv").read_bytes()
    arguments = ["audit", *own_folder.options("features", "edges", "predictions")]
    for more in ([], ["--overwrite"]):
        assert main([*arguments, "--out", "people.html", *more]) == 2
        assert "people.csv is an input of this call (people.csv)" in capsys.readouterr().err
    assert main([*arguments, "--out", "list.html"]) == 2  # another table of the user
    assert "list.csv is a file that cfe_faiss has not written" in capsys.readouterr().err
    assert (own_folder.path / "people.csv").read_bytes() == before
    endings = {path.suffix for path in own_folder.path.iterdir()}
    assert not endings & {".html", ".json", ".xml"}


def test_files_of_a_data_set_are_inputs(tmp_path, capsys):
    folder = tmp_path / "nifty" / "bail"
    folder.mkdir(parents=True)
    (folder / "bail.csv").write_text("mine")
    options = ["--dataset", "bail", "--data-root", str(tmp_path), "--overwrite"]
    for arguments in (
        ["audit", "--out", str(folder / "bail.html"), *options],
        ["build", str(folder / "bail.csv"), *options],
        ["plot", "other", "--out", str(folder / "bail.csv"), *options],
    ):
        assert main(arguments) == 2
        assert "bail.csv is an input of this call" in capsys.readouterr().err
    assert (folder / "bail.csv").read_text() == "mine"


def test_a_foreign_picture_is_kept(tmp_path, capsys):
    (tmp_path / "evidence.png").write_bytes(b"mine")
    assert main(["demo", "--out", str(tmp_path)]) == 2
    assert "evidence.png is a file that cfe_faiss has not written" in capsys.readouterr().err
    assert (tmp_path / "evidence.png").read_bytes() == b"mine"
