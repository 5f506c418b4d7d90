"""Files that are written together appear together or not at all, with the mode of the files that they replace."""

import os
import pathlib
import stat
from collections.abc import Callable
from pathlib import Path

import file_writers
import numpy as np
import pytest
from file_writers import inverted_file as index
from interrupts import raises_at

import cfe_faiss as cfe
from cfe_faiss import audit, scale
from cfe_faiss.files.outputs import new_file, new_files

pytestmark = pytest.mark.usefixtures("without_sync")

NAMES = ["r.csv", "r.html", "r.json", "r.xml"]


def write_report(folder: Path) -> audit.Report:
    return file_writers.write_report(folder, figures=False)


def write_model(folder: Path) -> None:
    torch = pytest.importorskip("torch")
    from cfe_faiss.models import save

    save(torch.nn.Linear(2, 2), folder / "model.pt")


def write_job(folder: Path) -> None:
    if (folder / "job.json").exists():
        for path in folder.glob("evidence/*"):
            path.write_bytes(b"damaged")
    file_writers.write_job(folder)


def relabel_shards(folder: Path) -> None:
    if not (folder / "shards.json").exists():
        scale.write_shards(index(), folder, 2)
    opened = scale.ShardedEvidenceIndex.open(folder)
    opened.relabel(np.full(opened.ntotal, opened.members().labels.max() + 1))


WRITERS: dict[str, Callable[[Path], object]] = {
    **file_writers.WRITERS,
    "job": write_job,
    "model": write_model,
    "changed shards": relabel_shards,
}


def modes(folder: Path) -> dict[str, int]:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in files}


@pytest.mark.usefixtures("shared_workers")
@pytest.mark.parametrize("name", WRITERS)
def test_modes_are_kept_and_new_files_follow_the_umask(name: str, tmp_path: Path) -> None:
    write, before = WRITERS[name], os.umask(0o027)
    try:
        write(tmp_path)
        if name != "job":  # its files are written by other processes
            assert set(modes(tmp_path).values()) == {0o640}
        for mode in (0o600, 0o664):
            for path in tmp_path.rglob("*"):
                if path.is_file():
                    path.chmod(mode)
            write(tmp_path)
            assert set(modes(tmp_path).values()) == {mode}
    finally:
        os.umask(before)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_owners_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.index"
    cfe.write_index(index(), path)
    os.chown(path, 1234, 4321)
    cfe.write_index(index(), path)
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 4321)


@pytest.mark.parametrize("unnamed", [True, False])
def test_a_secret_is_never_readable_while_it_is_written(
    unnamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    path = tmp_path / "a"
    path.touch(0o600)
    with new_file(path, overwrite=True) as file:
        assert stat.S_IMODE(os.fstat(file.fileno()).st_mode) == 0o600


@pytest.mark.parametrize("name", ["a" * 255, "ä" * 127 + "x", "\N{SNOWMAN}" * 85])
@pytest.mark.parametrize("unnamed", [True, False])
def test_names_may_be_as_long_as_the_file_system_admits(
    name: str, unnamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    for _ in range(2):
        cfe.write_index(index(), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert cfe.read_index(tmp_path / name).ntotal == file_writers.N


# --- several files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_in_place_of_a_file_leaves_all_as_it_was(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        file_writers.write_report(tmp_path)
    assert str(tmp_path / name) in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("unnamed", [True, False])
def test_an_error_while_files_get_their_names_is_undone(
    place: int, unnamed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not unnamed:
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    targets = [tmp_path / name for name in "abc"]
    for target in targets[:2]:
        target.write_text("old")
    targets[place].unlink(missing_ok=True)
    before = {path.name: path.read_text() for path in tmp_path.iterdir()}

    def write() -> None:
        with new_files(targets, overwrite=True) as files:
            for file in files:
                file.write(b"new")
            targets[place].mkdir()

    with pytest.raises(OSError, match="irectory") as caught:
        write()
    assert str(targets[place]) in str(caught.value)
    assert ".tmp" not in str(caught.value)
    targets[place].rmdir()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_errors_name_the_path_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    for path in (Path("missing/a.index"), Path("file/a.index"), Path("b" * 256), tmp_path):
        with pytest.raises(OSError, match=path.name) as caught:
            cfe.write_index(index(), path)
        assert ".tmp" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # that was just opened
def test_an_interrupt_at_any_line_leaves_all_files_or_none(old: bool, tmp_path: Path) -> None:
    targets = [tmp_path / name for name in NAMES]

    def write() -> None:
        with new_files(targets, overwrite=True) as files:
            for file in files:
                file.write(b"new")

    seen, line = set(), 1
    while True:
        for path in tmp_path.iterdir():
            path.unlink()
        for target in targets[: 2 * old]:
            target.write_text("old")
        before = {path.name: path.read_text() for path in tmp_path.iterdir()}
        is_interrupted = raises_at(line, KeyboardInterrupt, write, "files", (pathlib.__file__,))
        after = {path.name: path.read_text() for path in tmp_path.iterdir() if path.name in NAMES}
        assert after in (before, dict.fromkeys(NAMES, "new"))
        assert len([*tmp_path.iterdir()]) == len(after)
        seen.add(len(after))
        if not is_interrupted:
            break
        line += 1
    assert line > 50
    assert seen == {2 * old, 4}
