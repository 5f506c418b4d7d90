import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfe_faiss.datasets.own.table import Source, as_numbers, as_texts, is_table, read_table, text_format


def written(folder: Path, data: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


@pytest.mark.parametrize(
    "data",
    [
        'id,name\n1,"Doe, Jane"\n2,Ann\n',
        'id;name\n1;"Doe, Jane"\n2;Ann\n',
        "id\tname\n1\tDoe, Jane\n2\tAnn\n",
        '\ufeffid,name\r\n1,"Doe, Jane"\r\n2,Ann\r\n',
        ' id , name \n1,"Doe, Jane"\n 2 ,Ann',
        'id,name\n1,"Doe, Jane"\n2,Ann\n\n\n',
    ],
)
def test_dialects_of_csv(tmp_path: Path, data: str) -> None:
    table = read_table(written(tmp_path, data))
    assert table.columns == {"id": ["1", "2"], "name": ["Doe, Jane", "Ann"]}
    assert table.has_header
    assert (len(table), table.place(0), table.place(1)) == (2, "line 2", "line 3")


def test_compressed_csv(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, gzip.compress(b"a,b\nx,y\n"), "t.csv.gz")).columns == {"a": ["x"], "b": ["y"]}
    with pytest.raises(ValueError, match="must be compressed by gzip"):
        read_table(written(tmp_path, b"a,b\nx,y\n", "u.csv.gz"))


def test_lines_after_fields_of_several_lines(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, 'a,b\n"x\ny\nz",1\nw,2\n'))
    assert table.columns["a"] == ["x\ny\nz", "w"]
    assert [table.place(row) for row in range(2)] == ["line 2", "line 5"]


def test_no_header(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "1,2\n3,4\n"))
    assert (table.columns, table.has_header) == ({"1": ["1", "3"], "2": ["2", "4"]}, False)
    table = read_table(written(tmp_path, "# from to\na  b\nc\td\n", "t.txt"))
    assert (table.columns, table.has_header) == ({"1": ["a", "c"], "2": ["b", "d"]}, False)
    assert table.place(1) == "line 3"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "must hold a table, got an empty file"),
        (b"a,b\n", "must hold a row below its header, got none"),
        (b"a,b\n1\n", r"t\.csv, line 2: 1 fields, where line 1 has 2"),
        (b"a,b\n1,2\n1,2,3\n", "line 3: 3 fields, where line 1 has 2"),
        (b"a,b\n1,2\n\n3,4\n", "line 3: the line is empty"),
        (b'a,b\n"1,2\n', "line 2: unexpected end of data"),
        (b"a,b\nx,\xe9\n", "must be UTF-8, got byte 0xe9 in line 2"),
        ("a,b\nx,y\n".encode("utf-16"), "must be UTF-8, got byte 0xff in line 1"),
        (b",b\n1,x\n", "column 1 has no name"),
        (b"a,a\nx,y\n", "two columns have the name 'a'"),
        (b"a\n" + b"x" * 200_000, "line 2: field larger than field limit"),
    ],
)
def test_bad_text(tmp_path: Path, data: bytes, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        read_table(written(tmp_path, data))


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"must be a file of the kind \.csv, \.csv\.gz, \.tsv, \.parquet, \.xlsx or \.txt"
    ):
        read_table(tmp_path / "t.json")
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "nowhere.csv")
    with pytest.raises(ValueError, match=r"t\.parquet must be a Parquet file"):
        read_table(written(tmp_path, b"no", "t.parquet"))
    pq.write_table(pa.table({"a": [[1, 2]]}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="column 'a' must hold numbers, texts, booleans or dates, got list"):
        read_table(tmp_path / "t.parquet")
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="got 0 rows of 1 columns"):
        read_table(tmp_path / "t.parquet")


def test_encodings_and_decimal_commas(tmp_path: Path) -> None:
    text = "name;rate;note\nJosé;1,5;a,b\nAna;2,25;c\n"
    path = written(tmp_path, text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"must be UTF-8, got byte 0xe9 in line 2 \(--encoding names another\)"):
        read_table(path)
    with text_format("latin-1", ","):
        found = read_table(path)
        assert is_table(path)
    assert found.columns == {"name": ["José", "Ana"], "rate": ["1.5", "2.25"], "note": ["a,b", "c"]}
    with pytest.raises(ValueError, match="encoding must be one that Python knows"), text_format("latin-99", None):
        pass
    with text_format("utf8", None):
        assert read_table(written(tmp_path, "\ufeffa,b\n1,x\n".encode())).columns == {"a": ["1"], "b": ["x"]}
    assert read_table(written(tmp_path, b"a\tb\n1\tx,y\n", "t.tsv")).columns == {"a": ["1"], "b": ["x,y"]}


def test_decimal_commas_and_other_marks(tmp_path: Path) -> None:
    with text_format(None, ","):
        for text in ("1.500", "-12.500", "1.234,5", "1.234.567"):
            path = written(tmp_path, f"name;rate\nAna;1,5\nBo;{text}\n".encode())
            if text.count(".") + text.count(",") == 1:  # else the column holds texts
                with pytest.raises(
                    ValueError, match=rf"t\.csv, line 3: rate must have no mark of thousands, got '{text}'"
                ):
                    read_table(path)
            else:
                assert read_table(path).columns["rate"] == ["1,5", text]
        shares = written(tmp_path, b"yes;no\n0.250;0.750\n1.0;0.0\n")
        assert read_table(shares).columns == {"yes": ["0.250", "1.0"], "no": ["0.750", "0.0"]}
        assert read_table(written(tmp_path, b"1,5;2,5;3\n")).columns == {"1": ["1.5"], "2": ["2.5"], "3": ["3"]}
        assert read_table(written(tmp_path, b'a,b\n"1,5",x\n')).columns == {"a": ["1.5"], "b": ["x"]}


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n"])
def test_all_ends_of_lines(tmp_path: Path, end: str) -> None:
    path = written(tmp_path, end.join(("a;b", "1;x", "2;y", "")).encode())
    assert is_table(path)
    assert read_table(path).columns == {"a": ["1", "2"], "b": ["x", "y"]}
    assert not is_table(written(tmp_path, end.join(("1;2", "3;4", "")).encode()))


def test_excel(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    frame = pd.DataFrame({"id": [1, 2], "score": [0.5, None], "job": ["cook", None]})
    frame["born"] = pd.to_datetime(["1990-01-02", "1991-03-04"])
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    columns = {"id": ["1", "2"], "score": ["0.5", ""], "job": ["cook", ""], "born": ["1990-01-02", "1991-03-04"]}
    assert read_table(tmp_path / "t.xlsx").columns == columns
    book = openpyxl.load_workbook(tmp_path / "t.xlsx")
    book.active["J7"].font = openpyxl.styles.Font(bold=True)  # neither a column nor a row
    book.save(tmp_path / "t.xlsx")
    assert read_table(tmp_path / "t.xlsx").columns == columns
    frame.iloc[:0].to_excel(tmp_path / "t.xlsx", index=False)
    with pytest.raises(ValueError, match="must hold a header and a row below it"):
        read_table(tmp_path / "t.xlsx")
    with pytest.raises(ValueError, match="must be an Excel file"):
        read_table(written(tmp_path, b"no", "u.xlsx"))


def test_parquet(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "whole": [1, 2],
            "real": [0.5, None],
            "text": [" x", None],
            "category": pd.Categorical(["u", "v"]),
            "flag": [True, False],
            "nullable": pd.array([7, None], "Int64"),
        }
    )
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    table = read_table(tmp_path / "t.parquet")
    assert {name: as_texts(column) for name, column in table.columns.items()} == {
        "whole": ["1", "2"],
        "real": ["0.5", ""],
        "text": ["x", ""],
        "category": ["u", "v"],
        "flag": ["true", "false"],
        "nullable": ["7", ""],
    }
    assert (table.lines, table.place(1)) == (None, "row 2")
    np.testing.assert_array_equal(as_numbers(table.columns["nullable"]), [7, np.nan])


def test_dates_are_texts_as_in_iso_8601(tmp_path: Path) -> None:
    days = pd.to_datetime(["2020-01-31", None])
    moments = pd.to_datetime(["2020-01-31 12:30:00.123456789", None])
    columns = {
        "nanoseconds": pa.array(days.astype("datetime64[ns]")),
        "seconds": pa.array(days.astype("datetime64[s]")),
        "moment": pa.array(moments),
        "zone": pa.array(moments.floor("s").tz_localize("Europe/Berlin")),
        "date": pa.array(days.to_series().dt.date.where(days.notna(), None)),
        "time": pa.array([45_000, None], pa.time32("s")),
        "category": pa.array(days.to_series().dt.date.where(days.notna(), None)).dictionary_encode(),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    assert read_table(tmp_path / "t.parquet").columns == {
        "nanoseconds": ["2020-01-31", ""],
        "seconds": ["2020-01-31", ""],
        "moment": ["2020-01-31 12:30:00.123456", ""],
        "zone": ["2020-01-31 12:30:00+01:00", ""],
        "date": ["2020-01-31", ""],
        "time": ["12:30:00", ""],
        "category": ["2020-01-31", ""],
    }


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (["1", "-2.5", "1e3"], [1, -2.5, 1000]),
        (["1", "", "NA", "null"], [1, np.nan, np.nan, np.nan]),
        (["1", "x"], None),
        (["", ""], None),
        (["NA", "NA"], None),
        (["1_000", "2"], None),
        (["1,5", "2"], None),
    ],
)
def test_numbers(column: list[str], expected: list[float] | None) -> None:
    numbers = as_numbers(column)
    if expected is None:
        assert numbers is None
    else:
        np.testing.assert_array_equal(numbers, expected)


def test_sources(tmp_path: Path) -> None:
    assert Source.parse("a.csv") == Source(Path("a.csv"))
    assert Source.parse("a.csv:x") == Source(Path("a.csv"), ("x",))
    assert Source.parse("a.csv:x,y z") == Source(Path("a.csv"), ("x", "y z"))
    path = written(tmp_path, "a\nx\n", "odd:name.csv")
    assert Source.parse(str(path)) == Source(path)
    assert Source.parse(f"{path}:a") == Source(path, ("a",))


def test_unknown_column(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, "a,b\nx,y\n"))
    with pytest.raises(ValueError, match=r"must be one of .*t\.csv \(a, b\), got 'c'"):
        table.column("c")
