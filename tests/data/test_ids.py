import numpy as np
import pandas as pd
import pytest

from cfe_faiss.data.columns import Table
from cfe_faiss.data.roles import Ids


def table(**columns):
    frame = pd.DataFrame(columns, dtype=object)
    return Table("t.csv", frame, is_text=True, lines=range(2, len(frame) + 2))


def test_texts_and_integers():
    ids = Ids.of_column(table(id=["10", "-3", "7"]), "id")
    assert ids.names.dtype == np.int64
    assert ids.names.tolist() == [10, -3, 7]
    for texts in (["007", "8"], ["1.0", "2"], ["a", "1"], ["99999999999999999999", "1"]):
        ids = Ids.of_column(table(id=texts), "id")
        assert (ids.names.dtype, ids.names.tolist()) == (object, texts)
        assert ids.find([texts[1], "x", texts[0]]).tolist() == [1, -1, 0]


def test_numbers_of_rows():
    ids = Ids.of_rows(3)
    expected = [2, -1, -1, -1, 1, -1, -1]
    assert ids.find(["2", "3", "-1", "x", "1.0", "1.5", "9" * 40]).tolist() == expected
    assert ids.rows(table(a=["x", "y", "z"])).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"t\.csv must hold a row for each of 3 nodes, got 1"):
        ids.rows(table(a=["x"]))
    with pytest.raises(ValueError, match=r"t\.csv, line 3: a must be in 0\.\.2, got '3'"):
        ids.nodes_of(table(a=["0", "3"]), "a")


@pytest.mark.parametrize(
    ("texts", "expected"),
    [(["a", ""], "line 3: no id"), (["a", "b", "a"], "line 4: id 'a' again, as in line 2")],
)
def test_bad_ids(texts, expected):
    with pytest.raises(ValueError, match=expected):
        Ids.of_column(table(id=texts), "id")
