"""LlamaIndex's FAISS vector stores over evidence indexes.

Both stores add one vector at a time, without its class, and load by ``faiss.read_index``. So labels are given by
``relabel`` afterwards, and files need ``cfe.write_index``.
"""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from tickets import TEXTS, D, classify, embed

import cfe_faiss as cfe

pytest.importorskip("llama_index.core", reason='needs pip install "cfe-faiss[integrations]"')
pytest.importorskip(
    "llama_index.vector_stores.faiss", reason='needs pip install "cfe-faiss[integrations]"'
)

from llama_index.core import StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import MetadataFilters, VectorStoreQuery
from llama_index.vector_stores.faiss import FaissMapVectorStore, FaissVectorStore

Index = cfe.IndexEvidenceIDMap2 | cfe.IndexEvidenceIVF
KINDS = ["flat", "ivf"]
FILE = "default__vector_store.json"  # what LlamaIndex calls the file of the FAISS index
LABELS = classify(TEXTS)
NEW = ["The blue lamp arrived broken and nobody answers", "Thank you for the blue lamp"]


class TextEmbedding(BaseEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        return embed([text])[0].tolist()

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def empty(kind: str) -> Index:
    if kind == "flat":
        return cfe.IndexEvidenceIDMap2(D)
    index = cfe.IndexEvidenceIVF(D, 3, 2)
    index.train(embed(TEXTS))
    index.nprobe = 6
    return index


def nodes_of(texts: list[str], start: int = 0) -> list[TextNode]:
    vectors = embed(texts).tolist()
    return [
        TextNode(id_=f"ticket-{start + i}", text=text, embedding=vector)
        for i, (text, vector) in enumerate(zip(texts, vectors, strict=True))
    ]


def nearest(query: str, k: int, among: list[int]) -> list[int]:
    """Return which k of the numbered texts are most similar to a query, by brute force."""
    similarities = embed([(TEXTS + NEW)[i] for i in among]) @ embed([query])[0]
    return [among[i] for i in np.argsort(-similarities, kind="stable")[:k]]


def of_other_class(label: int) -> list[int]:
    return [i for i, other in enumerate(LABELS) if other != label]


def query(store: Any, text: str, k: int) -> Any:
    return store.query(
        VectorStoreQuery(query_embedding=embed([text])[0].tolist(), similarity_top_k=k)
    )


def texts_of(retriever: Any, text: str) -> list[str]:
    return [found.node.get_content() for found in retriever.retrieve(text)]


# --- FaissVectorStore -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_store_adds_queries_and_leaves_a_class_out(kind: str) -> None:
    store = FaissVectorStore(empty(kind))
    assert store.add(nodes_of(TEXTS)) == [str(i) for i in range(len(TEXTS))]
    everything = list(range(len(TEXTS)))
    found = query(store, NEW[0], 4)
    assert found.ids == [str(i) for i in nearest(NEW[0], 4, everything)]
    answer = found.similarities
    assert answer == pytest.approx(np.sort(embed(TEXTS) @ embed(NEW[:1])[0])[::-1][:4], abs=1e-6)
    # no document has a class yet
    assert query(FaissVectorStore(store.client.excluding(1)), NEW[0], 3).ids == []
    store.client.relabel(LABELS)
    for label in (0, 1):
        contrast = FaissVectorStore(store.client.excluding(label))
        for text in NEW:
            answer = query(contrast, text, 3).ids
            assert answer == [str(i) for i in nearest(text, 3, of_other_class(label))]
        assert len(query(contrast, NEW[0], 50).ids) == len(of_other_class(label)) < len(TEXTS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_store_does_not_do_leaves_the_index_as_it_is(kind: str) -> None:
    store = FaissVectorStore(empty(kind))
    store.add(nodes_of(TEXTS))
    with pytest.raises(NotImplementedError):
        store.delete("0")
    with pytest.raises(ValueError, match="filters not implemented"):
        store.query(
            VectorStoreQuery(query_embedding=[0.0] * D, filters=MetadataFilters(filters=[]))
        )
    assert store.client.ntotal == len(TEXTS)


@pytest.mark.parametrize("kind", KINDS)
def test_persisting_and_loading(kind: str, tmp_path: Path) -> None:
    store = FaissVectorStore(empty(kind))
    store.add(nodes_of(TEXTS))
    store.client.relabel(LABELS)
    store.persist(str(tmp_path / FILE))
    loaded = FaissVectorStore.from_persist_dir(str(tmp_path))
    # LlamaIndex reads by faiss.read_index
    assert type(loaded.client) is type(faiss.downcast_index(store.client))
    assert query(loaded, NEW[0], 4).ids == query(store, NEW[0], 4).ids

    # the same file, with the labels behind it
    cfe.write_index(store.client, tmp_path / FILE, overwrite=True)
    answer = query(FaissVectorStore.from_persist_dir(str(tmp_path)), NEW[0], 4).ids
    assert answer == query(store, NEW[0], 4).ids
    index = cfe.read_index(tmp_path / FILE)
    found = query(FaissVectorStore(index.excluding(1)), NEW[0], 3)
    assert found.ids == [str(i) for i in nearest(NEW[0], 3, of_other_class(1))]


# --- VectorStoreIndex -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_retriever_of_documents_that_the_classifier_labels_differently(
    kind: str, tmp_path: Path
) -> None:
    faiss_index = empty(kind)
    storage = StorageContext.from_defaults(vector_store=FaissVectorStore(faiss_index))
    index = VectorStoreIndex(nodes_of(TEXTS), storage_context=storage, embed_model=TextEmbedding())
    faiss_index.relabel(LABELS)
    expected = [TEXTS[i] for i in nearest(NEW[0], 3, list(range(len(TEXTS))))]
    assert texts_of(index.as_retriever(similarity_top_k=3), NEW[0]) == expected

    label = int(classify(NEW[:1])[0])
    expected = [TEXTS[i] for i in nearest(NEW[0], 3, of_other_class(label))]

    def contrast(index: Any, **stores: Any) -> list[str]:
        view = StorageContext.from_defaults(
            vector_store=FaissVectorStore(index.excluding(label)), **stores
        )
        other = load_index_from_storage(view, embed_model=TextEmbedding())
        return texts_of(other.as_retriever(similarity_top_k=3), NEW[0])

    found = contrast(faiss_index, docstore=storage.docstore, index_store=storage.index_store)
    assert found == expected
    storage.persist(str(tmp_path))
    cfe.write_index(faiss_index, tmp_path / FILE, overwrite=True)
    assert contrast(cfe.read_index(tmp_path / FILE), persist_dir=str(tmp_path)) == expected


# --- FaissMapVectorStore ----------------------------------------------------------------------------------------------


def map_store() -> FaissMapVectorStore:
    store = FaissMapVectorStore(empty("flat"))
    store.add(nodes_of(TEXTS))
    store.client.relabel(LABELS)
    return store


def leaving_out(store: FaissMapVectorStore, label: int) -> FaissMapVectorStore:
    """Return the store with a view; its constructor takes an IndexIDMap only, which a view is not."""
    contrast = store.model_copy()
    contrast._faiss_index = store.client.excluding(label)
    return contrast


def test_the_map_store_takes_the_exact_index_only() -> None:
    for other in (empty("ivf"), empty("flat").excluding(0)):
        with pytest.raises(ValueError, match=r"requires a faiss\.IndexIDMap"):
            FaissMapVectorStore(other)
    assert isinstance(map_store().client, faiss.IndexIDMap)


def test_the_map_store_adds_queries_and_deletes() -> None:
    store = map_store()
    store.delete("ticket-3")
    store.delete_nodes(["ticket-0", "ticket-8"])
    left = [i for i in range(len(TEXTS)) if i not in (0, 3, 8)]
    assert store.client.ntotal == len(left)
    for text in [TEXTS[0], *NEW]:
        assert query(store, text, 4).ids == [f"ticket-{i}" for i in nearest(text, 4, left)]
        for label in (0, 1):
            others = [i for i in left if LABELS[i] != label]
            expected = [f"ticket-{i}" for i in nearest(text, 3, others)]
            assert query(leaving_out(store, label), text, 3).ids == expected


def test_the_map_store_loads_what_it_saved(tmp_path: Path) -> None:
    store = map_store()
    store.delete("ticket-3")
    store.persist(str(tmp_path / FILE))
    cfe.write_index(store.client, tmp_path / FILE, overwrite=True)
    loaded = FaissMapVectorStore.from_persist_dir(str(tmp_path))
    assert query(loaded, TEXTS[3], 4).ids == query(store, TEXTS[3], 4).ids
    loaded._faiss_index = cfe.read_index(tmp_path / FILE)
    found = query(leaving_out(loaded, 1), TEXTS[3], 4).ids
    assert found == query(leaving_out(store, 1), TEXTS[3], 4).ids
