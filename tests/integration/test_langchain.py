"""LangChain's FAISS vector store over evidence indexes.

The store numbers documents 0, 1, ... in the order in which they come, calls ``add`` with vectors alone, and saves by
``faiss.write_index``. So labels are given by ``relabel`` afterwards, and files need ``cfe.write_index``.
"""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from tickets import TEXTS, D, classify, embed

import cfe_faiss as cfe

pytest.importorskip("langchain_community", reason='needs pip install "cfe-faiss[integrations]"')

from langchain_community.docstore.in_memory import InMemoryDocstore
from langchain_community.vectorstores.faiss import FAISS
from langchain_community.vectorstores.utils import DistanceStrategy
from langchain_core.embeddings import Embeddings

Index = cfe.IndexEvidenceIDMap2 | cfe.IndexEvidenceIVF
KINDS = ["flat", "ivf"]
NAMES = [f"ticket-{i}" for i in range(len(TEXTS))]
LABELS = classify(TEXTS)
NEW = ["The blue lamp arrived broken and nobody answers", "Thank you for the blue lamp"]


class TextEmbeddings(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return embed(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return embed([text])[0].tolist()


def empty(kind: str) -> Index:
    if kind == "flat":
        return cfe.IndexEvidenceIDMap2(D)
    index = cfe.IndexEvidenceIVF(D, 3, 2)
    index.train(embed(TEXTS))
    index.nprobe = 6
    return index


def store_of(index: Any) -> FAISS:
    return FAISS(
        TextEmbeddings(),
        index,
        InMemoryDocstore(),
        {},
        distance_strategy=DistanceStrategy.MAX_INNER_PRODUCT,
    )


def filled(kind: str) -> FAISS:
    store = store_of(empty(kind))
    store.add_texts(TEXTS, [{"complaint": int(label)} for label in LABELS], NAMES)
    store.index.relabel(LABELS)
    return store


def leaving_out(store: FAISS, label: int) -> FAISS:
    """Return a store over the same documents that never returns those of one class."""
    view = store.index.excluding(label)
    return FAISS(
        store.embeddings,
        view,
        store.docstore,
        store.index_to_docstore_id,
        distance_strategy=DistanceStrategy.MAX_INNER_PRODUCT,
    )


def nearest(texts: list[str], query: str, k: int) -> list[str]:
    """Return the k texts most similar to a query, by brute force."""
    order = np.argsort(-(embed(texts) @ embed([query])[0]), kind="stable")
    return [texts[i] for i in order[:k]]


def of_other_class(label: int, texts: list[str] = TEXTS) -> list[str]:
    return [text for text, other in zip(texts, classify(texts), strict=True) if other != label]


def texts_of(documents: list[Any]) -> list[str]:
    return [document.page_content for document in documents]


# --- queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_over_an_evidence_index_is_like_any_other(kind: str) -> None:
    store = filled(kind)
    assert store.index.ntotal == len(TEXTS)
    for query in NEW:
        assert texts_of(store.similarity_search(query, 4)) == nearest(TEXTS, query, 4)
        found = store.similarity_search_with_score(query, 3, score_threshold=0.2)
        assert [score for _, score in found] == pytest.approx(
            np.sort(embed(TEXTS) @ embed([query])[0])[::-1][:3], abs=1e-6
        )
    assert [document.id for document in store.similarity_search(TEXTS[5], 1)] == [NAMES[5]]
    answer = texts_of(store.as_retriever(search_kwargs={"k": 2}).invoke(NEW[0]))
    assert answer == nearest(TEXTS, NEW[0], 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("query", [TEXTS[0], *NEW])
def test_the_most_similar_documents_that_the_classifier_labels_differently(
    kind: str, query: str
) -> None:
    store = filled(kind)
    label = int(classify([query])[0])
    contrast = leaving_out(store, label)
    found = texts_of(contrast.similarity_search(query, 3))
    assert found == nearest(of_other_class(label), query, 3)
    # Fewer of them than wanted: what is there comes back.
    assert len(contrast.similarity_search(query, 50)) == len(of_other_class(label)) < len(TEXTS)
    # A filter on metadata, as LangChain's own way, looks at 20 documents only and then throws away.
    filtered = store.similarity_search(
        query, 3, filter={"complaint": 1 - label}, fetch_k=len(TEXTS)
    )
    assert texts_of(filtered) == texts_of(contrast.similarity_search(query, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_marginal_relevance(kind: str) -> None:
    store, stock = filled(kind), store_of(faiss.IndexFlatIP(D))
    stock.add_texts(of_other_class(1))
    found = leaving_out(store, 1).max_marginal_relevance_search(
        TEXTS[0], 4, fetch_k=6, lambda_mult=0.3
    )
    assert texts_of(found) == texts_of(
        stock.max_marginal_relevance_search(TEXTS[0], 4, fetch_k=6, lambda_mult=0.3)
    )
    assert set(texts_of(found)) <= set(of_other_class(1))


@pytest.mark.parametrize("kind", KINDS)
def test_documents_are_no_evidence_before_they_have_a_label(kind: str) -> None:
    store = filled(kind)
    store.add_texts(NEW)
    label = int(classify([NEW[0]])[0])
    contrast = leaving_out(store, 1 - label)
    assert NEW[0] in texts_of(store.similarity_search(NEW[0], 1))
    assert NEW[0] not in texts_of(contrast.similarity_search(NEW[0], 50))
    store.index.relabel(classify(NEW), [len(TEXTS), len(TEXTS) + 1])
    assert texts_of(contrast.similarity_search(NEW[0], 1)) == [NEW[0]]


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_saving_and_loading(kind: str, tmp_path: Path) -> None:
    store = filled(kind)
    store.save_local(str(tmp_path))
    # the same file, with the labels behind it
    cfe.write_index(store.index, tmp_path / "index.faiss", overwrite=True)
    loaded = FAISS.load_local(
        str(tmp_path),
        TextEmbeddings(),
        allow_dangerous_deserialization=True,
        distance_strategy=DistanceStrategy.MAX_INNER_PRODUCT,
    )
    # LangChain reads by faiss.read_index
    assert type(loaded.index) is type(faiss.downcast_index(store.index))
    assert texts_of(loaded.similarity_search(NEW[0], 4)) == nearest(TEXTS, NEW[0], 4)
    loaded.index = cfe.read_index(tmp_path / "index.faiss")
    found = texts_of(leaving_out(loaded, 1).similarity_search(NEW[0], 3))
    assert found == nearest(of_other_class(1), NEW[0], 3)
    loaded.add_texts(NEW)
    assert texts_of(loaded.similarity_search(NEW[1], 1)) == [NEW[1]]


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_that_langchain_saved_gets_its_labels_back(kind: str, tmp_path: Path) -> None:
    filled(kind).save_local(str(tmp_path))
    loaded = FAISS.load_local(str(tmp_path), TextEmbeddings(), allow_dangerous_deserialization=True)
    labels = classify(
        [
            loaded.docstore.search(name).page_content
            for _, name in sorted(loaded.index_to_docstore_id.items())
        ]
    )
    if kind == "ivf":
        loaded.index = cfe.IndexEvidenceIVF.from_stock(loaded.index, labels)
    else:
        stock, loaded.index = loaded.index, cfe.IndexEvidenceIDMap2(D)
        loaded.index.merge_from(stock)
        loaded.index.relabel(labels)
    found = texts_of(leaving_out(loaded, 1).similarity_search(NEW[0], 3))
    assert found == nearest(of_other_class(1), NEW[0], 3)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_keep_everything(kind: str) -> None:
    store = filled(kind)
    again = FAISS.deserialize_from_bytes(
        store.serialize_to_bytes(), TextEmbeddings(), allow_dangerous_deserialization=True
    )
    assert type(again.index) is type(store.index)
    found = texts_of(leaving_out(again, 1).similarity_search(NEW[0], 3))
    assert found == nearest(of_other_class(1), NEW[0], 3)


def test_a_view_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        leaving_out(filled("flat"), 1).save_local(str(tmp_path))


# --- changes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_merging_two_stores(kind: str) -> None:
    store, other = filled(kind), store_of(empty(kind))
    other.add_texts(NEW, ids=["new-0", "new-1"])
    other.index.relabel(classify(NEW))
    # Both stores number from 0. LangChain counts on the index to shift the second's ids, as only IndexFlat does.
    with pytest.raises(ValueError, match="ids must not be in the index yet"):
        store.merge_from(other)
    assert (store.index.ntotal, other.index.ntotal) == (len(TEXTS), len(NEW))
    shifted = cfe.IndexEvidenceIDMap2(D)
    shifted.merge_from(other.index, store.index.ntotal)
    other.index = shifted
    store.merge_from(other)
    everything = TEXTS + NEW
    for query in everything:
        assert texts_of(store.similarity_search(query, 3)) == nearest(everything, query, 3)
    found = texts_of(leaving_out(store, 0).similarity_search(NEW[0], 3))
    assert found == nearest(of_other_class(0, everything), NEW[0], 3)
