"""Labels and ids of every library."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import assert_same_arrays, clustered

import cfe_faiss as cfe

pd: Any = pytest.importorskip("pandas")
pa: Any = pytest.importorskip("pyarrow")
torch: Any = pytest.importorskip("torch")

DIM = 4
X, NUMBERS = clustered(24, DIM, 5)


def exact(labels: Any, **options: Any) -> cfe.IndexEvidenceIDMap2:
    index = cfe.IndexEvidenceIDMap2(DIM)
    index.add_with_labels(X[: len(labels)], labels, **options)
    return index


@given(st.lists(st.sampled_from([None, 1, 2, 3]), min_size=24, max_size=24))
def test_labels_of_every_library(labels: list[Any]) -> None:
    expected = [-1 if label is None else label for label in labels]
    for values in (
        pd.Series(labels, dtype="Int64"),
        pd.Series(labels, dtype=float),
        pd.Categorical(labels),
        pa.array(labels, pa.int64()),
        pl.Series(labels),
        np.array([*labels, None], object)[:-1],
    ):
        index = exact([1] * 24)
        index.relabel(values)
        assert index.members().labels.tolist() == expected


def test_missing_texts_of_pandas_are_unknown_labels() -> None:
    index = exact(pd.Series(["a", "b", "c"], dtype="string"))
    index.relabel(pd.Series(["b", None, pd.NA], dtype="string"))
    assert index.members().labels.tolist() == ["b", None, None]
    with pytest.raises(ValueError, match="labels must hold a label for each vector, got None"):
        exact(pd.Series(["a", pd.NA], dtype="string"))


def changed(forms: Callable[[list[int]], Any]) -> list[Any]:
    """Return what calls answer whose ids are in one form."""
    index = exact(NUMBERS[:24], ids=forms(list(range(100, 124))))
    ids = forms([101, 103, 107])
    found = [
        index.search_stored(ids, 3)[1],
        index.search_evidence(X[:1], NUMBERS[:1], 3, sel=ids)[1],
        index.search_evidence(X[:2], NUMBERS[:2], 3, exclude=[ids, forms([105])])[1],
        index.reconstruct_batch(ids),
    ]
    index.relabel([5, 5, 5], ids)
    index.update_vectors(ids, X[:3])
    found += [index.members().labels, index.reconstruct_batch(ids)]
    index.remove_ids(ids)
    return [*found, index.members().ids]


@pytest.mark.parametrize(
    "form",
    [
        np.array,
        pd.Series,
        pd.Index,
        pl.Series,
        pa.array,
        torch.tensor,
        tuple,
        lambda x: pd.array(x, dtype="Int64"),
    ],
)
def test_ids_of_every_library(form: Any) -> None:
    assert_same_arrays(changed(form), changed(list))
