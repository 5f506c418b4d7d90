"""Tables as people have them: text files of other programs, Excel, Parquet, damaged and hostile files."""

import bz2
import gzip
import io
import lzma
import os
import re
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import cfe_faiss as cfe
from cfe_faiss import audit
from cfe_faiss.data.columns import Reading
from cfe_faiss.data.read import as_table, read_matrix, read_table
from cfe_faiss.data.roles import Ids, Source
from cfe_faiss.datasets.own import OwnFiles, read_own

MANY = "".join(f"{i},x\n" for i in range(40))


def written(folder, data, name="t.csv"):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def read(path, **options):
    """The columns of a file, None where missing."""
    with warnings.catch_warnings(action="ignore"):
        table = read_table(path, Reading(**options))
        frame = table.frame(table.columns)
        table.problems.check()
    return {
        name: frame[name].astype(object).where(frame[name].notna(), None).tolist() for name in frame
    }


def zipped(text):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("t.csv", text)
    return buffer.getvalue()


AB = {"a": [1, 2], "b": ["x", "y"]}
UV = {"1": ["u", "v"], "2": [1, 2]}
NUMBERED = {"1": [1, 2], "2": ["x", "y"], "3": ["u", "v"]}


def case(data, expected=AB, name="t.csv", **options):
    return data, name, options, expected


FILES = {
    "plain": case("a,b\n1,x\n2,y\n"),
    "semicolons and decimal commas": case(
        "a;b\n1,5;x\n2,5;y\n", AB | {"a": [1.5, 2.5]}, decimal=","
    ),
    "bars": case("a|b\n1|x\n2|y\n"),
    "tabs": case("a\tb\n1\tx\n2\ty\n", name="t.tsv"),
    "a separator of one's own": case("a!b\n1!x\n2!y\n", separator="!"),
    "line of Excel": case("sep=;\na;b\n1;x\n2;y\n"),
    "quoted line of Excel": case('"sep=|"\na|b\n1|x\n2|y\n'),
    "title": case("Loans of 2024\n\na,b\n1,x\n2,y\n"),
    "title with separators": case("Loans of 2024,\n,\na,b\n1,x\n2,y\n"),
    "title of several parts": case("Loans, 2024\na,b,c\n1,x,u\n2,y,v\n", AB | {"c": ["u", "v"]}),
    "index": case(",a,b\n0,1,x\n1,2,y\n"),
    "index of joined frames": case(",a,b\n0,1,x\n0,2,y\n"),
    "index, written twice": case(",Unnamed: 0,a,b\n0,0,1,x\n1,1,2,y\n"),
    "row names of R": case('"a","b"\n"1",1,"x"\n"2",2,"y"\n'),
    "doubled names": case("a,b,a\n1,x,3\n2,y,4\n", AB | {"a.1": [3, 4]}),
    "commas at the ends": case("a,b,\n1,x,\n2,y,\n"),
    "commas at the ends of rows": case("a,b\n1,x,\n2,y,\n"),
    "empty lines": case("a,b\n\n1,x\n\n,\n2,y\n,\n\n"),
    "header again": case("a,b\n1,x\na,b\n2,y\n"),
    "blanks": case(" a , b \n 1, x\n2 ,y \n"),
    "byte order mark, Windows": case("\ufeffa,b\r\n1,x\r\n2,y\r\n"),
    "old Macintosh": case("a,b\r1,x\r2,y\r"),
    "UTF-16": case("a,b\n1,x\n2,y\n".encode("utf-16")),
    "latin-1": case(
        "a,b\n1,é\n2,y\n".encode("latin-1"), AB | {"b": ["é", "y"]}, encoding="latin-1"
    ),
    "quotes": case('a,b\n1,"x, ""y""\nz"\n2,y\n', AB | {"b": ['x, "y"\nz', "y"]}),
    "gzip": case(gzip.compress(b"a,b\n1,x\n2,y\n"), name="t.csv.gz"),
    "bzip2": case(bz2.compress(b"a,b\n1,x\n2,y\n"), name="t.csv.bz2"),
    "xz": case(lzma.compress(b"a,b\n1,x\n2,y\n"), name="t.csv.xz"),
    "white space in gzip": case(gzip.compress(b"u 1\nv 2\n"), UV, name="t.data.gz", header="none"),
    "another ending": case("a,b\n1,x\n2,y\n", name="adult.test"),
    "another ending, tabs": case("a\tb\n1\tx\n2\ty\n", name="t.export"),
    "another ending, UTF-16": case("a,b\n1,x\n2,y\n".encode("utf-16"), name="t.out"),
    "no ending": case("a;b\n1;x\n2;y\n", name="table"),
    "a comment above rows": case(
        "|1x3\n1, x, u\n2, y, v\n", NUMBERED, name="t.test", header="none"
    ),
    "Orange": case("a\tb\nc\td\n\tclass\n1\tx\n2\ty\n", name="t.tab"),
    "Orange, words": case("a\tb\ncontinuous\tdiscrete\n\tclass\n1\tx\n2\ty\n", name="t.tab"),
    "letters that are no types": case(
        "a\tb\nc\td\nd\tc\n", {"a": ["c", "d"], "b": ["d", "c"]}, name="t.tab"
    ),
    "zip": case(zipped("a,b\n1,x\n2,y\n"), name="t.zip"),
    "no header": case("p1,1.5\np2,2\n", {"1": ["p1", "p2"], "2": [1.5, 2]}, header="none"),
    "names that are years": case(
        "a,2019,2020\nu,1,2\nv,3,4\n", {"a": ["u", "v"], "2019": [1, 3], "2020": [2, 4]}
    ),
    "names that are numbers": case(
        "0,1,2\n5,6,7\n", {"0": [5], "1": [6], "2": [7]}, header="first"
    ),
    "text file with commas": case("a,b\n1,x\n2,y\n", name="t.txt"),
    "text file of Excel": case("a\tb\n1\tx z\n2\ty\n", AB | {"b": ["x z", "y"]}, name="t.txt"),
    "white space": case("u 1\nv 2\n", UV, name="t.data", header="none"),
    "thousands": case('a,b\n"1,234",x\n"2,345.5",y\n', AB | {"a": [1234, 2345.5]}, thousands=","),
    "thousands, continental": case(
        "a;b\n1.234,5;x\n2;y\n", AB | {"a": [1234.5, 2]}, thousands=".", decimal=","
    ),
    "thousands, Swiss": case("a;b\n1'234;x\n2;y\n", AB | {"a": [1234, 2]}, thousands="'"),
    "currency": case("a,b\n$1,x\n$2.5,y\n", AB | {"a": [1, 2.5]}),
    "percent": case("a,b\n45%,x\n2.5 %,y\n", AB | {"a": [45, 2.5]}),
    "missing texts of pandas": case("a,b\n1,NA\nn/a,y\n", {"a": [1, None], "b": [None, "y"]}),
    "texts as they stand": case("a,b\n1,NA\n2,None\n", AB | {"b": ["NA", "None"]}, keep_text=["b"]),
    "other missing texts": case(
        "a,b\n1,?\n-99,y\n", {"a": [1, None], "b": [None, "y"]}, na=["?", "-99"]
    ),
    "codes": case("a,b\n01234,x\n02345,y\n", AB | {"a": ["01234", "02345"]}, categorical=["a"]),
    "booleans": case("a,b\nTrue,x\nfalse,y\n", AB | {"a": [True, False]}),
    "dates": case("a,b\n1,2020-01-31\n2,31.01.2020\n", AB | {"b": ["2020-01-31", "31.01.2020"]}),
    "an empty line of one column": case("a\nx\n\ny\n", {"a": ["x", None, "y"]}),
}


@pytest.mark.parametrize(("data", "name", "options", "expected"), FILES.values(), ids=FILES)
def test_files_as_people_have_them(tmp_path, data, name, options, expected):
    assert read(written(tmp_path, data, name), **options) == expected


REFUSED = [
    ("", {}, "got an empty file"),
    ("a,b\n", {}, "must hold a row below its header"),
    ("a,b\n1,é\n".encode("latin-1"), {}, r"byte 0xe9 in line 2; encoding='latin-1'"),
    (b"a,b\n\0,x\n", {}, "must be a text file"),
    ("a,b,c\n1,2,3\n1,2\n\n1,2,3,4\n5,6,7\n", {}, "line 3 has 2, line 5 has 4"),
    ('a,b\n"1,2\n3,4\n', {}, "quotation mark"),
    ("p1,40.5,f\np2,30,m\np3,20,f\n", {}, r"looks like a row \('40.5'\); header='none'"),
    ("f,yes\nm,no\nf,yes\n", {}, r"looks like a row \('f', 'yes'\); header='none'"),
    ("f,yes\nm,yes\nf,no\n", {}, r"looks like a row \('f', 'yes'\); header='none'"),
    ("0,1,2\n5,6,7\n", {}, "header='none' .* header='first'"),
    ('a\n"1,234"\n"2,345"\n', {}, r"'a' .*'1,234' \(line 2\).* thousands=','"),
    ("a;b\n1,234;x\n2,345;y\n", {"decimal": ","}, r"thousands=','"),
    ("a;b\n1,5;x\n2,345;y\n", {"thousands": ","}, r"'1,5'"),
    ("a;b\n1.500;x\n2.000;y\n", {"decimal": ","}, r"thousands='\.'"),
    ("a;b\n1,5;x\n2;y\n", {}, r"'1,5' .* decimal=','"),
    ("a;b\n1.234,5;x\n2;y\n", {}, r"decimal=',' thousands='\.'"),
    ("a;b\n1 234;x\n2;y\n", {}, r"thousands=' '"),
    ("a,b\n$1,x\n€2,y\n", {}, r"'\$1' .*'€2' .* one unit"),
    ("a,b\n45%,x\n0.3,y\n", {}, r"'45%' .* one unit"),
    (f"a,b\n{MANY}?,x\n", {}, r"'\?' \(line 42\) .* na=\['\?'\] .* categorical=\['a'\]"),
    (f"a,b\n{MANY}?,x\n", {"are_options": True}, r"'\?' .* --na '\?' .* --categorical a"),
    ("a,b\n1,x\n", {"header": "second"}, "header must be first or none"),
    ("a,b\n1,x\n", {"thousands": "."}, "thousands must be a mark other than that of decimals"),
    ("a,b\n1,x\n", {"encoding": "latin-99"}, "encoding must be one that Python knows"),
]


@pytest.mark.parametrize(("data", "options", "expected"), REFUSED)
def test_files_with_several_meanings_are_refused(tmp_path, data, options, expected):
    with pytest.raises(ValueError, match=expected):
        read(written(tmp_path, data), **options)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (bytes(range(256)) * 9, "t.bin"),
        (b"(\xb5/\xfd" + os.urandom(99) + bytes(9), "t.csv.zst"),
        (b"[{'a': 1, 'b': 2},\n{'a': 3, 'b': 4}]\n", "t.json"),
        (b"<html>\n<p>a,b\n<p>1,2\n", "t.html"),
        (b"This table holds\nof adults, the data\nfrom the census\n", "adult.names"),
    ],
)
def test_other_kinds_of_files_are_refused(tmp_path, data, name):
    path = written(tmp_path, data, name)
    message = r"must be a file of the kind .*\.csv, .*\.bz2, .*text"
    with pytest.raises(ValueError, match=message) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)


def test_problems_of_one_kind_are_one_sentence(tmp_path):
    n = 150
    names = [f"n{i}" for i in range(n)]
    numbers = np.arange(n).astype(str)
    table = {"age": numbers, "debt": numbers, "name": names, "street": names[::-1]}
    frame = pd.DataFrame(table).assign(loan=["yes", "no"] * (n // 2))
    frame.loc[3, "age"] = "?"
    frame.loc[5, "debt"] = "none known"
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    expected = [
        "2 problems",
        "na=['?', 'none known']",
        "categorical=['age', 'debt']",
        "ignore=['name', 'street']",
    ]
    for given in (path, frame):
        with pytest.raises(ValueError, match="problems") as caught:
            cfe.EvidenceFinder.from_table(given, "loan")
        assert [part for part in expected if part not in str(caught.value)] == []
    files = OwnFiles(path, predictions=Source(path, ("loan",)), reading=Reading(are_options=True))
    with pytest.raises(ValueError, match="2 problems") as caught:
        read_own(files)
    for part in ("--na '?' 'none known'", "--categorical age debt", "--ignore name street"):
        assert part in str(caught.value)
    gaps = written(tmp_path, "a,b,c\n1,,x\n,2,y\n,3,z\n")
    message = r"line 3: column 'a' .* 1 other of 3 rows, column 'b' in 1; missing='keep'"
    with pytest.raises(ValueError, match=message):
        read_own(OwnFiles(gaps, missing="error"))
    matrix = written(tmp_path, "A11 6 x\nA12 7 y\n", "german.data")
    with (
        warnings.catch_warnings(action="ignore"),
        pytest.raises(ValueError, match="--header none") as caught,
    ):
        read_own(OwnFiles(matrix, reading=Reading(are_options=True)))
    assert str(caught.value).count("--header none") == 1
    assert "('" not in str(caught.value)


@pytest.mark.parametrize("are_options", [False, True])
def test_repeated_ids_have_a_remedy(tmp_path, are_options):
    text = "nr,x,y\n" + "".join(f"{i // 3},{i},{'ab'[i % 2]}\n" for i in range(30))
    path = written(tmp_path, text)
    ignore = "--ignore nr .*--without nr" if are_options else r"ignore=\['nr'\].*without=\['nr'\]"
    person = "--person nr" if are_options else "person='nr'"
    message = rf"line 3: nr '0' again, as in line 2.*{ignore}.*{person}"
    with pytest.raises(ValueError, match=message):
        Ids.of_column(read_table(path, Reading(are_options=are_options)), "nr")
    if not are_options:
        for given in (path, pd.read_csv(path), pl.read_csv(path)):
            with pytest.raises(ValueError, match=rf"nr '0' again.*{ignore}.*{person}"):
                cfe.EvidenceFinder.from_table(given, "y", id="nr")
        with pytest.raises(ValueError, match=r"id must hold each id once .*person="):
            cfe.EvidenceFinder.from_table(path, "y", id=[1, 1] * 15, ignore=["nr"])


def test_missing_texts_are_those_of_pandas(tmp_path):
    words = ["", "#N/A", "NA", "N/A", "NaN", "nan", "None", "null", "NULL", "<NA>", "n/a", "-", "?"]
    words += ["missing", "unknown", "#NA", "-1.#IND", "1.#QNAN", "-nan", "-NaN", "1.#IND"]
    words += ["-1.#QNAN", "#N/A N/A", "NONE", "none", "Na"]
    path = written(tmp_path, "a,b\n" + "".join(f"{word},x\n" for word in words))
    assert [value is None for value in read(path)["a"]] == pd.read_csv(path)["a"].isna().tolist()


def test_all_problems_are_reported_at_once(tmp_path):
    rows = "".join(f"p{i % 130},n{i},{i}," + ('"1,5"\n' if i % 2 else "2\n") for i in range(140))
    path = written(tmp_path, f"person,name,age,rate\n{rows}p9,n9,?,1\n")
    with pytest.raises(ValueError, match="problems") as caught:
        cfe.EvidenceFinder.from_table(path, "lone", id="person", sensitive=["sex"])
    for part in ("'lone'", "'sex'", "hold each id once", r"'name' has", "na=['?']", "decimal=','"):
        assert part in str(caught.value)


def test_a_path_and_a_frame_mean_the_same(tmp_path):
    rng = np.random.default_rng(0)
    n = 200
    frame = pd.DataFrame(
        {"id": [f"{i:03}" for i in range(n)], "age": rng.integers(18, 80, n).astype(str)}
    )
    frame["sex"], frame["loan"] = rng.choice(["f", "m", "NA"], n), rng.choice(["yes", "no"], n)
    frame.loc[[3, 5], "age"] = "n/a"
    path = tmp_path / "t.csv"
    frame.to_csv(path)
    given = [path, str(path), pd.read_csv(path), pd.read_csv(path).to_dict("list")]
    given += [pl.from_pandas(pd.read_csv(path)), pa.Table.from_pandas(pd.read_csv(path))]
    with warnings.catch_warnings(action="ignore"):
        finders = [cfe.EvidenceFinder.from_table(each, "loan", id="id") for each in given]
    for finder in finders[1:]:
        assert_allclose(finder.vectors, finders[0].vectors, atol=1e-6)
        assert finder.attributes is not None
        assert list(finder.attributes) == ["age", "sex"]
    assert finders[0].names([7]).tolist() == ["007"]
    with pytest.raises(ValueError, match=r"'n/a' .* na=\['n/a'\]"):
        cfe.EvidenceFinder.from_table(frame, "loan", id="id")
    with warnings.catch_warnings(action="ignore"):
        own = cfe.EvidenceFinder.from_table(frame, "loan", id="id", na=["n/a"], categorical=["sex"])
    assert own.attributes is not None
    assert own.attributes["sex"].values == ("NA", "f", "m")
    coded = frame.astype({"sex": "category"})
    with pytest.warns(cfe.InputWarning, match="sex 'NA' "):
        finder = cfe.EvidenceFinder.from_table(coded, "loan", id="id", na=["n/a", "NA"])
    assert finder.attributes is not None
    assert finder.attributes["sex"].values == ("f", "m")


def test_notes_count_what_was_changed(tmp_path):
    text = f"Loans\n,a,b,b\n{''.join(f'{i},{i},x,NA' + chr(10) for i in range(30))}30,n/a,x,z\n"
    path = written(tmp_path, text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = read_table(path)
        table.frame(table.columns)
        table.problems.check()
    told = " ".join(str(warning.message) for warning in caught)
    cases = ("above the header", "b.1 'NA' 30", "a 'n/a' 1", "called b.1", "index of a data frame")
    for part in cases:
        assert part in told
    assert all(issubclass(warning.category, cfe.InputWarning) for warning in caught)


def test_roles(tmp_path):
    frame = pd.DataFrame(
        {"x": [1.0, 2, 3, 4], "note": ["?", "1", "2", "3"], "w": [1, 2, 0, 1], "y": list("abab")}
    )
    finder = cfe.EvidenceFinder.from_table(frame, "y", ignore=["note"], weights="w")
    assert finder.attributes is not None
    assert list(finder.attributes) == ["x"]
    assert finder.weights is not None
    assert finder.weights.tolist() == [1, 2, 0, 1]
    with pytest.raises(ValueError, match="weights must be finite and at least 0"):
        cfe.EvidenceFinder.from_table(frame.assign(w=-1), "y", ignore=["note"], weights="w")
    for column in ("weights", "probabilities"):
        with pytest.raises(TypeError, match=column):
            cfe.EvidenceFinder.from_table(frame, "y", **{column: "note"})
    with pytest.raises(ValueError, match=r"weights must be finite .*, got \[inf"):
        cfe.EvidenceFinder.from_table(frame.assign(w=np.inf), "y", ignore=["note"], weights="w")
    with pytest.raises(ValueError, match="categorical must name a column of frame"):
        cfe.EvidenceFinder.from_table(frame, "y", ignore=["note"], categorical=["z"])
    with pytest.raises(ValueError, match="weights"):
        audit.report(finder, tmp_path / "r.html")
    with pytest.raises(ValueError, match="weights"):
        audit.direct_effects(finder, sensitive=["x"], unfavourable="b")
    assert not any(tmp_path.iterdir())
    with pytest.raises(ValueError, match=r"sensitive .*got 'y', which is the model"):
        cfe.EvidenceFinder.from_table(frame, "y", ignore=["note"], sensitive=["y"])


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars"])
def test_long_integers_beside_missing_ones_stay_exact(tmp_path, kind):
    frame = pl.DataFrame({"account": [2**60, 2**60 + 1, None], "x": [1, 2, 3]})
    paths = {name: tmp_path / f"t.{name}" for name in ("csv", "parquet")}
    frame.write_csv(paths["csv"])
    frame.write_parquet(paths["parquet"])
    values = as_table(paths.get(kind, frame), Reading()).values("account")
    assert values.dropna().tolist() == [2**60, 2**60 + 1]


def test_excel(tmp_path):
    frame = pd.DataFrame({"id": [1, 2], "score": [0.5, None], "job": ["cook", None]})
    frame["born"] = pd.to_datetime(["1990-01-02", "1991-03-04"])
    path = tmp_path / "t.xlsx"
    frame.to_excel(path, index=False, startrow=2)
    expected = {
        "id": [1, 2],
        "score": [0.5, None],
        "job": ["cook", None],
        "born": ["1990-01-02", "1991-03-04"],
    }
    assert read(path) == expected
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(path)
    book.active["A1"] = "Loans of 2024"
    book.active["J7"].font = openpyxl.styles.Font(bold=True)  # neither a column nor a row
    book.save(path)
    assert read(path) == expected


def test_parquet(tmp_path):
    frame = pd.DataFrame(
        {"whole": [1, 2], "real": [0.5, None], "text": [" x", None], "flag": [True, False]}
    )
    frame["day"] = [pd.Timestamp("2020-01-31").date(), None]
    frame["moment"] = pd.to_datetime(["2020-01-31 12:30", None])
    frame["category"] = pd.Categorical(["u", None])
    frame["nullable"] = pd.array([7, None], "Int64")
    path = tmp_path / "t.parquet"
    frame.iloc[::-1].to_parquet(path)
    expected = {"whole": [2, 1], "real": [None, 0.5], "text": [None, "x"], "flag": [False, True]}
    expected |= {"day": [None, "2020-01-31"], "moment": [None, "2020-01-31 12:30:00"]}
    assert read(path) == expected | {"category": [None, "u"], "nullable": [None, 7]}
    pq.write_table(pa.table({"a": [[1, 2]]}), path)
    with pytest.raises(ValueError, match=r"column .*got list"):
        read(path)


def test_sources(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, 'a,"b,c",d: e,x=y\n1,2,3,4\n')
    cases = (("t.csv:b,c", ("b,c",)), ("t.csv:a,x=y", ("a", "x=y")), ("t.csv:d: e", ("d: e",)))
    for text, names in cases:
        assert Source.parse(text).read()[1] == names
    assert Source.of(["t.csv", "b,c", "a"]).read()[1] == ("b,c", "a")
    assert Source.of(["new=t.csv:a"], named=True) == Source(Path("t.csv"), ("a",), "new")
    with pytest.raises(ValueError, match=r"must name a column of t\.csv .*got 'z'"):
        Source.parse("t.csv:z").read()


def test_matrices_and_tables(tmp_path):
    for text, name, expected in (
        ("1,2\n3,4\n", "t.csv", False),
        ("1,5;2\n3;4\n", "t.csv", False),
        ("1 2\n3 4\n", "t.txt", False),
        ("a,b\n1,2\n", "t.csv", True),
        ('a,b\n"' + "x\n" * 50_000 + '",2\n', "t.csv", True),
    ):
        path = written(tmp_path, text, name)
        assert read_table(path).has_header == expected
    assert read_table(written(tmp_path, "1,2\n3,4\n"), Reading(header="none")).has_header


# --- damaged and hostile files ----------------------------------------------------------------------------------------


def excel(change):
    """An Excel file whose sheet, as XML, is changed."""
    buffer, changed = io.BytesIO(), io.BytesIO()
    pd.DataFrame({"a": [1, 2]}).to_excel(buffer, index=False)
    with (
        zipfile.ZipFile(buffer) as archive,
        zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as other,
    ):
        for name in archive.namelist():
            data = archive.read(name)
            other.writestr(name, change(data) if name.endswith("sheet1.xml") else data)
    return changed.getvalue()


def far_cell():
    row = b'<row r="99999999"><c r="A99999999" t="n"><v>3</v></c></row></sheetData>'
    return excel(lambda sheet: sheet.replace(b"</sheetData>", row))


def bomb(name):
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w") as file,
    ):
        file.write(b"1,2\n" * (1 << 20))
    return buffer.getvalue()


def expanding_texts():
    buffer = io.BytesIO()
    codes = pa.array(np.zeros(10_000, np.int32))
    pq.write_table(
        pa.table({"a": pa.DictionaryArray.from_arrays(codes, ["x" * 10_000]), "b": codes}), buffer
    )
    return buffer.getvalue()


def repeated_numbers():
    buffer = io.BytesIO()
    block = pa.table({"a": np.zeros(1 << 18, np.int64)})
    with pq.ParquetWriter(buffer, block.schema) as writer:
        for _ in range(20):
            writer.write_table(block)
    return buffer.getvalue()


HOSTILE = [
    ("encrypted.xlsx", lambda: bytes.fromhex("d0cf11e0a1b11ae1") + bytes(4096), "is encrypted"),
    ("broken.xlsx", lambda: far_cell()[:-300], "must be an Excel file"),
    (
        "damaged.xlsx",
        lambda: far_cell()[:1500] + b"z" * 9 + far_cell()[1509:],
        "must be an Excel file",
    ),
    ("sheet.xlsx", lambda: excel(lambda sheet: sheet[:-40]), "must be an Excel file"),
    ("text.xlsx", lambda: b"a,b\n1,2\n", "must be an Excel file"),
    ("far.xlsx", far_cell, "must have 1,048,576 rows at most"),
    ("bomb.xlsx", lambda: bomb("xl/sharedStrings.xml"), "expand beyond measure"),
    ("bomb.zip", lambda: bomb("t.csv"), "expand beyond measure"),
    ("bomb.csv.gz", lambda: gzip.compress(b"1,2\n" * (1 << 20)), "expand beyond measure"),
    ("bomb.csv.bz2", lambda: bz2.compress(b"1,2\n" * (1 << 20)), "expand beyond measure"),
    ("bomb.csv.xz", lambda: lzma.compress(b"1,2\n" * (1 << 20)), "expand beyond measure"),
    ("cut.csv.xz", lambda: lzma.compress(os.urandom(9999))[:-99], "must be a table"),
    ("no.csv.bz2", lambda: b"a,b\n1,2\n", "must be a table"),
    ("cut.csv.gz", lambda: gzip.compress(os.urandom(9999))[:-99], "must be a table"),
    ("no.zip", lambda: b"PK\3\4 no", "must be a table"),
    ("texts.parquet", expanding_texts, "must have .* bytes at most"),
    ("numbers.parquet", repeated_numbers, "must have .* cells"),
    ("no.parquet", lambda: b"PAR1 no PAR1", "must be a Parquet file"),
    ("no.npy", lambda: b"\x93NUMPY no", "must be a NumPy array"),
]


PROGRAM = """
import resource, sys
import cfe_faiss.cli, openpyxl, pandas, pyarrow.parquet
import cfe_faiss.data.read as limits
resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))
limits.ALWAYS_EXPANDED, limits.MOST_CELLS, limits.MOST_BYTES = 1 << 20, 1 << 20, 1 << 24
for name in sys.argv[1:]:
    status = cfe_faiss.cli.main(["audit", "--features", name, "--predictions", f"{name}:a", "--overwrite"])
    print(status, file=sys.stderr)
"""


def test_damaged_and_hostile_files_are_one_line_within_bounds(tmp_path):
    for name, make, _ in HOSTILE:
        written(tmp_path, make(), name)
    names = [name for name, *_ in HOSTILE]
    command = [sys.executable, "-c", PROGRAM, *names]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    lines = done.stderr.splitlines()
    assert lines[1::2] == ["2"] * len(names)
    for line, (name, _, expected) in zip(lines[::2], HOSTILE, strict=True):
        assert re.search(f"{re.escape(name)}.* {expected}", line)


@pytest.mark.parametrize("name", ["t.csv", "t.xlsx", "t.parquet", "t.npy", "t.txt"])
def test_pipes_and_devices_are_refused(tmp_path, name):
    os.mkfifo(tmp_path / name)
    (tmp_path / f"zero{name}").symlink_to("/dev/zero")
    for path in (tmp_path / name, tmp_path / f"zero{name}"):
        for reader in (read_table, read_matrix):
            if reader is read_table or name.endswith(("csv", "txt")):
                with pytest.raises(ValueError, match="must be a regular file"):
                    reader(path)


def test_unknown_kinds_of_tables():
    with pytest.raises(TypeError, match="frame must be a table of pandas, polars or PyArrow"):
        as_table(3, Reading())
    with pytest.raises(ValueError, match="frame must have rows"):
        as_table(pd.DataFrame({"a": []}), Reading())
