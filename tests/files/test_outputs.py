"""Writers refuse inputs, mapped files and, without ``overwrite``, files that this package has not written."""

import os
from pathlib import Path

import faiss
import numpy as np
import pytest
from file_writers import LABELS, WRITERS, X, inverted_file, write_pictures
from stores import filled

import cfe_faiss as cfe
from cfe_faiss import audit, scale
from cfe_faiss.files.outputs import check_outputs, is_ours, path_within

pytestmark = pytest.mark.usefixtures("without_sync")
FOREIGN = b"mine\n"
linux = pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="only Linux tells which files are mapped"
)


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("shared_workers")
@pytest.mark.parametrize("name", WRITERS)
def test_files_of_others_are_replaced_only_when_asked_and_own_files_always(
    name: str, tmp_path: Path
) -> None:
    write = WRITERS[name]
    folder, foreign = tmp_path / "own", tmp_path / "foreign"
    folder.mkdir()
    write(folder)
    first = contents(folder)
    write(folder)  # overwrites its files
    random = {"store": ("index-", "rows-"), "shards": ("shard-",)}.get(name, ("\0",))
    names = [path.relative_to(folder) for path in first if not path.name.startswith(random)]
    if name == "job":
        # Inputs are named by their content, and stages write to folders that the job looks for.
        names = [path for path in names if path.parts[0] not in ("inputs", ".lock")]
        names = [
            *{path.parts[0]: path for path in names}.values(),
            Path("step-0") / "000000.unit.npy",
        ]
    assert names
    for number, path in enumerate(names):
        place = foreign / str(number)
        (place / path).parent.mkdir(parents=True)
        (place / path).write_bytes(FOREIGN)
        with pytest.raises(ValueError, match="not written"):
            write(place)
        now = contents(place)
        assert now[place / path] == FOREIGN
        assert name == "pictures" or len(now) == 1  # pictures are written by two calls
    write(foreign / "0", overwrite=True)
    assert (foreign / "0" / names[0]).read_bytes() != FOREIGN
    write(foreign / "0")


def test_every_kind_of_file_is_recognised(tmp_path: Path) -> None:
    for name in ("index", "report"):
        (tmp_path / name).mkdir()
        WRITERS[name](tmp_path / name)
    write_pictures(tmp_path, ("a.png", "b.svg", "c.pdf", "d.eps", "e"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    kinds = {"", ".csv", ".eps", ".html", ".index", ".json", ".pdf", ".png", ".svg", ".xml"}
    assert {path.suffix for path in files} == kinds
    for path in files:
        assert is_ours(path), path
        inside = tmp_path / "other"
        # a quotation of our file is not our file
        inside.write_bytes(b"see " + path.read_bytes()[:500])
        assert not is_ours(inside)
    (tmp_path / "empty").touch()
    assert is_ours(tmp_path / "empty")


# --- inputs and mapped files ------------------------------------------------------------------------------------------


def test_an_input_is_found_by_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "people.csv"
    source.write_bytes(FOREIGN)
    (tmp_path / "link").symlink_to(source)
    os.link(source, tmp_path / "hard")
    (tmp_path / "folder").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("people.csv", "link", "hard", "folder/people.csv"):
        with pytest.raises(ValueError, match=r"is an input of this call \(.*people\.csv\)"):
            check_outputs(
                [tmp_path / "new", Path(name)], [tmp_path / "missing", source], overwrite=True
            )
    check_outputs([tmp_path / "new"], [source])


def test_devices_and_pipes_are_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull)):
        with pytest.raises(ValueError, match="must be a regular file"):
            check_outputs([path], overwrite=True)


@linux
@pytest.mark.parametrize("flags", [faiss.IO_FLAG_MMAP, faiss.IO_FLAG_MMAP_IFC])
def test_a_mapped_index_is_replaced_by_itself_only(flags: int, tmp_path: Path) -> None:
    path, other = tmp_path / "a.index", inverted_file()
    cfe.write_index(inverted_file(), path)
    mapped, before = cfe.read_index(path, flags), path.read_bytes()
    with pytest.raises(ValueError, match="is mapped into memory"):
        cfe.write_index(other, path, overwrite=True)
    assert path.read_bytes() == before
    cfe.write_index(mapped, path)
    _, I = mapped.search_stored(k=3)
    del mapped
    cfe.write_index(other, path)
    np.testing.assert_array_equal(cfe.read_index(path).search_stored(k=3)[1], I)


@linux
def test_a_mapped_store_is_replaced_by_itself_only(tmp_path: Path) -> None:
    first, other = filled(20)[0], filled(30)[0]
    first.save(tmp_path / "s")
    mapped = cfe.EvidenceStore.load(tmp_path / "s", mmap=True)
    loaded = cfe.EvidenceStore.load(tmp_path / "s")
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="is mapped into memory"):
        other.save(tmp_path / "s", overwrite=True)
    assert contents(tmp_path) == before
    for store in (loaded, mapped, first):
        store.save(tmp_path / "s")
    assert len(mapped.search(np.ones(8), 5)) == 5


@linux
def test_mapped_shards_are_replaced_by_themselves_only(tmp_path: Path) -> None:
    index, other = inverted_file(), inverted_file()
    scale.write_shards(index, tmp_path, 2)
    opened, before = scale.ShardedEvidenceIndex.open(tmp_path), contents(tmp_path)
    with pytest.raises(ValueError, match="is mapped into memory"):
        scale.write_shards(other, tmp_path, 3, overwrite=True)
    assert contents(tmp_path) == before
    for own in (index, opened):
        scale.write_shards(own, tmp_path, 3)
    assert len(scale.ShardedEvidenceIndex.open(tmp_path).shards) == 3


@linux
def test_a_report_does_not_replace_the_array_that_it_is_about(tmp_path: Path) -> None:
    X.tofile(tmp_path / "r.csv")
    mapped = np.memmap(tmp_path / "r.csv", np.float32, "r", shape=X.shape)
    finder = cfe.EvidenceFinder.from_vectors(mapped, LABELS, features=mapped)
    with pytest.raises(ValueError, match=r"r\.csv is mapped into memory"):
        audit.report(finder, tmp_path / "r.html", overwrite=True, progress=False)
    assert (tmp_path / "r.csv").read_bytes() == X.tobytes()


def test_a_report_does_not_replace_the_table_of_its_finder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = "".join(
        f"{a:.3f},{b:.3f},{rng.choice(['yes', 'no'])}\n" for a, b in rng.normal(size=(80, 2))
    )
    Path("people.csv").write_text("income,age,loan\n" + rows)
    finder = cfe.EvidenceFinder.from_table("people.csv", "loan")
    with pytest.raises(ValueError, match=r"people\.csv is an input of this call"):
        audit.report(finder, tmp_path / "people.html", overwrite=True, progress=False)
    assert contents(tmp_path) == {tmp_path / "people.csv": ("income,age,loan\n" + rows).encode()}


# --- paths in files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../a", "/a", "b/../../a", "..", ".", "", "link", "folder/a", "a\0", 3, None, ["a"]]
)
def test_paths_in_files_lead_nowhere_else(name: object, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "folder").symlink_to("/")
    message = r"^line 3 of list must name (a file below|no symbolic link)"
    with pytest.raises(ValueError, match=message):
        path_within(tmp_path, name, "line 3 of list")


def test_paths_in_files_lead_below_their_folder(tmp_path: Path) -> None:
    assert path_within(tmp_path, "a/b..c", "x") == tmp_path / "a" / "b..c"
