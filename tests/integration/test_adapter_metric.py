"""Other frameworks take similarities for cosines, so a store of another metric is refused."""

import pytest

import cfe_faiss as cfe
from cfe_faiss.integrations.adapter import checked_store


def test_a_store_of_another_metric_is_refused() -> None:
    store = cfe.EvidenceStore(2)
    assert checked_store(store) is store
    with pytest.raises(ValueError, match=r"store .*got 'l2'"):
        checked_store(cfe.EvidenceStore(2, metric="l2"))
