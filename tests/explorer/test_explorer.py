"""Content and files of the explorer, and the way back of its marks."""

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cfe_faiss as cfe
from cfe_faiss import audit, mining
from cfe_faiss.cli import main
from cfe_faiss.explorer import MARKS, SETTLED, read_marks

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "=HYPERLINK(1)",
    '"; alert(1); "',
    "\u202eevil\x00\n",
    "{{ 7 * 7 }}",
]


def content_of(page: Path) -> Any:
    """Return what the script of a page reads, with row numbers as keys of the rows."""
    packed = re.search(r'id="data">([^<]*)<', page.read_text(encoding="utf-8"))
    assert packed is not None
    found = json.loads(zlib.decompress(base64.b64decode(packed[1])))
    found["rows"] = {int(row): facts for row, facts in found["rows"].items()}
    return found


def column_of(found: Any, name: str) -> dict[int, Any]:
    """Return the values of a column by row."""
    place = found["columns"].index(name)
    return {row: facts["values"][place] for row, facts in found["rows"].items()}


def ids_of(found: Any, side: str) -> list[str]:
    return [found["rows"][pair[side]]["id"] for pair in found["pairs"]]


def people(n: int = 60, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "who": [f"p{row}" for row in range(n)],
            "income": rng.normal(40, 9, n).round(1),
            "debt": rng.gamma(2, 5, n).round(1),
            "sex": rng.choice(["f", "m"], n),
            "loan": rng.choice(["no", "yes"], n),
        }
    )


def finder_of(table: pd.DataFrame, **options: Any) -> cfe.EvidenceFinder:
    return cfe.EvidenceFinder.from_table(table, "loan", id="who", sensitive=["sex"], **options)


@given(
    values=st.lists(st.tuples(st.integers(0, 3), st.sampled_from("xyz")), min_size=4, max_size=30),
    k=st.integers(1, 40),
    seed=st.integers(0, 5),
)
def test_rows_are_the_pairs_and_their_differences(
    values: list[tuple[int, str]], k: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = np.random.default_rng(seed)
    features = {"number": [float(a) for a, _ in values], "text": [b for _, b in values]}
    ids = [f"id {row}" for row in range(len(values))]
    labels = rng.integers(0, 2, len(values))
    labels[:2] = 0, 1
    X = rng.normal(size=(len(values), 3))
    finder = cfe.EvidenceFinder.from_vectors(X, labels, features=features, ids=ids, metric="l2")
    page = finder.explore(tmp_path_factory.mktemp("pages") / "pairs.html", k)
    found = content_of(page)
    frame = finder.top_pairs(k).to_frame(attributes=True)
    pairs = pd.DataFrame(found["pairs"])
    assert ids_of(found, "source") == frame["source"].tolist()
    assert ids_of(found, "target") == frame["target"].tolist()
    assert pairs["measure"].tolist() == frame["distance"].tolist()
    spread = np.std(features["number"])
    for place, differences in enumerate(pairs["differences"]):
        line = frame.iloc[place]
        changes = dict(differences)
        differ = [line[f"source_{name}"] != line[f"target_{name}"] for name in features]
        assert sorted(changes) == np.flatnonzero(differ).tolist()
        if 0 in changes:
            change = (line["target_number"] - line["source_number"]) / spread
            assert changes[0] == pytest.approx(change, rel=0.06)
        sizes = [1 if change is None else abs(change) for change in changes.values()]
        assert sizes == sorted(sizes, reverse=True)


def test_pairs_that_are_at_least_as_good(tmp_path: Path) -> None:
    finder = finder_of(people())
    better = {"income": "high", "debt": "low"}
    page = finder.explore(tmp_path / "pairs.html", better=better, unfavourable="no")
    found = content_of(page)
    shown = {
        tuple(sorted(found["rows"][pair[side]]["id"] for side in ("source", "target")))
        for pair in found["pairs"]
        if pair["better"]
    }
    dominated = audit.dominated(finder, unfavourable="no", better=better, k=5000)
    table = dominated.table[["refused", "granted"]].to_numpy().tolist()
    assert len(shown) == dominated.count > 10
    assert shown == {tuple(sorted(pair)) for pair in table}


def test_names_and_values_are_harmless(tmp_path: Path) -> None:
    n = len(HOSTILE)
    features = dict.fromkeys(HOSTILE, HOSTILE)
    labels = ["</script>" if row % 2 else "<b>" for row in range(n)]
    X = np.random.default_rng(0).normal(size=(n, 2))
    finder = cfe.EvidenceFinder.from_vectors(
        X, labels, features=features, ids=HOSTILE, sensitive=[HOSTILE[0]]
    )
    page = finder.explore(tmp_path / "pairs.html", title=HOSTILE[0])
    text = page.read_text(encoding="utf-8")
    assert text.count("<script") == text.count("</script>") == 2
    assert "<img" not in text
    assert "\u202e" not in text
    assert "49" not in re.findall("<label>.*", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src &#39;none&#39;; script-src &#39;sha256-")
    assert "unsafe" not in policy[1]
    script = (Path(cfe.__file__).parent / "explorer" / "page.js").read_text()
    assert len(script) < 30_000
    for call in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval", "fetch("):
        assert call not in script


def test_a_page_of_1000_pairs_and_20_columns_has_300_kb(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = np.tile(rng.normal(size=(1000, 20)), (2, 1))
    X[1000:] += rng.normal(size=(1000, 20)) / 100
    features = {f"column {place}": X[:, place] for place in range(20)}
    finder = cfe.EvidenceFinder.from_vectors(
        X, np.repeat([0, 1], 1000), features=features, metric="l2"
    )
    page = finder.explore(tmp_path / "pairs.html", 1000)
    assert len(content_of(page)["pairs"]) == 1000
    assert page.stat().st_size < 300_000


def test_ids_are_masked(tmp_path: Path) -> None:
    finder = finder_of(people())
    page = finder.explore(tmp_path / "pairs.html", mask_ids=True)
    found = content_of(page)
    assert all(facts["id"] == str(row) for row, facts in found["rows"].items())
    assert "personal data" in page.read_text(encoding="utf-8")
    assert not re.search(r"\bp\d+\b", json.dumps(found["rows"]))


def test_a_graph_has_neighbours_of_both(tmp_path: Path) -> None:
    class Data:
        x = np.array([[1.0, 0.0], [0.9, 0.1], [0.2, 0.8], [0.0, 1.0]], np.float32)
        edge_index = np.array([[0, 1, 0], [2, 2, 3]])

    finder = cfe.EvidenceFinder.from_data(Data, [0, 1, 1, 0])
    found = content_of(finder.explore(tmp_path / "pairs.html"))
    pair = next(one for one in found["pairs"] if {one["source"], one["target"]} == {0, 1})
    side = pair["near"][0]
    assert dict(side["drawn"]) == {2: True, 3: False}
    assert (side["count"], side["same"]) == (2, 1)


def test_scores_are_an_attribute(tmp_path: Path) -> None:
    finder = cfe.EvidenceFinder.from_vectors(
        [[1, 0], [0.9, 0.1], [0, 1]], scores=[0.1, 0.9, 0.5], features={"a": [1.0, 2.0, 3.0]}
    )
    found = content_of(finder.widest_pairs(2, similarity=-1).explore(tmp_path / "pairs.html"))
    assert {facts["decision"] for facts in found["rows"].values()} == {""}
    assert found["columns"] == ["score", "a"]
    assert found["left_out"] == [0]


def test_attributes_outside_the_distance_are_named(tmp_path: Path) -> None:
    table = people()
    table["gender"] = table["sex"].replace({"f": "woman", "m": "man"})
    found = content_of(finder_of(table).explore(tmp_path / "pairs.html"))
    assert [found["columns"][place] for place in found["left_out"]] == ["sex", "gender"]
    assert all(re.search(r"\.\d+$", pair["shown"]) for pair in found["pairs"])
    digits = {len(pair["shown"].replace(".", "").lstrip("0")) for pair in found["pairs"]}
    assert digits == {5}


def test_a_store_shows_metadata_and_texts(tmp_path: Path) -> None:
    store = cfe.EvidenceStore(2)
    store.add(
        ["a", "b", "gone", "c"],
        [[1, 0], [0.8, 0.6], [1, 1], [0, 1]],
        ["spam", "ham", "spam", "spam"],
        [{"year": 2020, "document": "own"}, {"year": 2021}, {}, {"lang": "de", "tags": ["x"]}],
        ["one two\nthree", "one three", None, None],
    )
    store.delete(["gone"])
    found = content_of(store.explore(tmp_path / "pairs.html"))
    assert ids_of(found, "source") == ["a", "b"]
    assert ids_of(found, "target") == ["b", "c"]
    assert set(found["columns"]) == {"year", "document (metadata)", "lang", "tags", "document"}
    texts = column_of(found, "document")
    assert texts == {0: "one two three", 1: "one three", 2: None}
    masked = content_of(store.explore(tmp_path / "pairs.html", mask_ids=True))
    assert {row: facts["id"] for row, facts in masked["rows"].items()} == {0: "0", 1: "1", 2: "2"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"path": "pairs.txt"}, r"path must end in \.html"),
        ({"path": "none/pairs.html"}, "folder that exists"),
        ({"better": {"income": "high"}}, "given together"),
        ({"unfavourable": "no"}, "given together"),
        ({"better": {"incom": "high"}, "unfavourable": "no"}, "did you mean 'income'"),
        ({"better": {"income": "high"}, "unfavourable": "maybe"}, "unfavourable"),
        ({"k": 0}, "k must be"),
    ],
)
def test_errors(options: dict[str, Any], error: str, tmp_path: Path) -> None:
    path = tmp_path / options.pop("path", "pairs.html")
    with pytest.raises((ValueError, FileNotFoundError), match=error):
        finder_of(people()).explore(path, **options)
    assert not path.exists()


def test_inputs_and_files_of_others_stay(tmp_path: Path) -> None:
    table = tmp_path / "people.html"
    people().to_csv(table, index=False)
    finder = cfe.EvidenceFinder.from_table(table, "loan", id="who")
    with pytest.raises(ValueError, match="is an input"):
        finder.explore(table, overwrite=True)
    other = tmp_path / "other.html"
    other.write_text("<p>mine</p>")
    with pytest.raises(ValueError, match="overwrite"):
        finder.explore(other)
    page = finder.explore(tmp_path / "pairs.html")
    assert finder.explore(page) == page


def test_a_report_links_to_the_explorer_of_its_pairs(tmp_path: Path) -> None:
    # The numbers of these classes are not their names.
    table = people().replace({"loan": {"no": "1", "yes": "2"}})
    finder = finder_of(table)
    (tmp_path / "a b").mkdir()
    options = {"pairs": 20, "cases": 1, "progress": False, "skip": ["sensitivity"]}
    report = audit.report(
        finder,
        tmp_path / "report.html",
        explorer=tmp_path / "a b" / "pairs.html",
        favourable="2",
        better={"income": "high"},
        **options,
    )
    assert report.files[4] == tmp_path / "a b" / "pairs.html"
    found = content_of(report.files[4])
    assert len(found["pairs"]) == 20
    income = column_of(found, "income")
    for pair in found["pairs"]:
        ends = [pair["source"], pair["target"]]
        ends.sort(key=lambda row: found["rows"][row]["decision"])
        refused, granted = (float(income[end]) for end in ends)
        assert pair["better"] == (refused >= granted)
    text = report.files[0].read_text(encoding="utf-8")
    assert '<a href="a%20b/pairs.html">' in text
    assert "<script" not in text
    with pytest.raises(ValueError, match=r"end in \.html"):
        audit.report(finder, tmp_path / "report.html", explorer=tmp_path / "pairs.txt", **options)


# --- marks ----------------------------------------------------------------------------------------


def marks_of(**columns: Any) -> pd.DataFrame:
    lines = {"source_row": [0, 3], "target_row": [1, 2], "source": ["p0", "p3"]}
    return pd.DataFrame({**lines, "mark": ["label error", "relevant"], "note": ["x", ""]} | columns)


def test_marks_come_back(tmp_path: Path) -> None:
    finder = finder_of(people())
    file = tmp_path / "marks.csv"
    marks_of(note=["=1, 'a'", "NA"]).to_csv(file, index=False)
    pairs = finder.reviewed(file)
    frame = pairs.to_frame()
    assert frame[["source", "target"]].to_numpy().tolist() == [["p0", "p1"], ["p3", "p2"]]
    assert frame["mark"].tolist() == ["label error", "relevant"]
    assert frame["note"].tolist() == ["=1, 'a'", "NA"]
    np.testing.assert_allclose(frame["distance"], pairs.distance, rtol=1e-6)
    found = content_of(pairs.explore(tmp_path / "pairs.html"))
    assert [pair["mark"] for pair in found["pairs"]] == ["label error", "relevant"]


def test_marks_of_masked_ids_come_back() -> None:
    assert len(finder_of(people()).reviewed(marks_of(source=["0", "3"]))) == 2


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"mark": ["wrong", ""]}, r"marks must be \(relevant, label error, explained\)"),
        ({"source_row": [0, 999]}, "source_row must lie in"),
        ({"source": ["p0", "p9"]}, "marks must be of this data: row 3 is 'p3', got 'p9'"),
    ],
)
def test_wrong_marks(columns: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        finder_of(people()).reviewed(marks_of(**columns))


def test_marks_need_their_columns() -> None:
    with pytest.raises(ValueError, match=r"marks lack the column 'mark', got \(source_row, "):
        read_marks(marks_of().drop(columns="mark"), 10)


def test_miners_leave_settled_pairs_out() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 4))
    y = rng.integers(0, 2, 30)
    pairs = mining.near_duplicates(X, y, -1)
    marks = pd.DataFrame(
        {
            "source_row": pairs.target[:9],
            "target_row": pairs.source[:9],
            "mark": np.tile(MARKS, 3),
        }
    )
    is_settled = np.isin(marks["mark"], SETTLED)
    left = mining.near_duplicates(X, y, -1, reviewed=marks)
    kept = np.append(~is_settled, np.ones(len(pairs) - 9, bool))
    np.testing.assert_array_equal(left.source, pairs.source[kept])
    np.testing.assert_array_equal(left.similarity, pairs.similarity[kept])
    _, negatives = mining.hard_negatives(X, X, (y, y), k=30, reviewed=marks)
    _, all_negatives = mining.hard_negatives(X, X, (y, y), k=30)
    settled = {frozenset(ends) for ends in marks.loc[is_settled].iloc[:, :2].to_numpy().tolist()}
    for row in range(30):
        expected = [
            other
            for other in all_negatives[row].tolist()
            if other >= 0 and frozenset((row, other)) not in settled
        ]
        assert negatives[row][negatives[row] >= 0].tolist() == expected
    with pytest.raises(ValueError, match="reviewed must be left out"):
        mining.hard_negatives(X[:3], X, (y[:3], y), k=1, reviewed=marks)


# --- the command line -----------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "people.csv"
    people().to_csv(table, index=False)
    options = ["explore", "--features", str(table), "--predictions", f"{table}:loan"]
    options += ["--out", str(tmp_path / "pairs.html"), "-k", "7"]
    better = ["--better", "income=high", "debt=low", "--unfavourable", "no"]
    assert main([*options, "--id", "who", "--sensitive", "sex", "--mask-ids", *better]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'pairs.html'}\n"
    found = content_of(tmp_path / "pairs.html")
    assert len(found["pairs"]) == 7
    assert all(facts["id"] == str(row) for row, facts in found["rows"].items())
    for wrong in (["--better", "income=high"], ["--mask-ids"], ["--exact", "nobody"]):
        assert main([*options, *wrong]) == 2
        error = capsys.readouterr().err
        assert re.fullmatch(r"(cfe-faiss: warning: .+\n)?cfe-faiss: error: .+\n", error)


def test_outputs_are_different_pages_and_are_checked_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    finder = finder_of(people())
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(ValueError, match="outputs of a call must be different files"):
        audit.report(finder, "r.html", favourable="yes", explorer="r.html", progress=False)
    with pytest.raises(ValueError, match=r"explorer must end in .html, got 'x.txt'"):
        audit.report(finder, "r.html", favourable="yes", explorer="x.txt", progress=False)
    with pytest.raises(ValueError, match=r"mine.html"):
        finder.explore("mine.html", k=-1)  # the path is checked first
    people().to_csv("t.csv", index=False)
    table = ["--features", "t.csv", "--predictions", "t.csv:loan", "--id", "who"]
    report = ["audit", *table, "--sensitive", "sex", "--favourable", "yes"]
    for options, message in (
        ([*report, "--out", "x.txt"], "--out must end in .html"),
        ([*report, "--explorer", "x.txt"], "--explorer must end in .html"),
        ([*report, "--out", "r.html", "--explorer", "r.html"], "must be different files"),
        (["explore", *table, "--out", "x.txt"], "--out must end in .html"),
    ):
        assert main(options) == 2
        assert message in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.html", "t.csv"]
    assert (tmp_path / "mine.html").read_text() == "mine"
