"""The FAISS stores of LangChain and LlamaIndex over evidence indexes.

Both number documents 0, 1, ... in the order in which they come, add vectors alone, and save by
``faiss.write_index``. So labels are given by ``relabel`` afterwards, and files need ``cfe.write_index``.
"""

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from framework_stores import LangChain as OurLangChain
from tickets import TEXTS, D, classify, embed

import cfe_faiss as cfe

pytest.importorskip("langchain_community", reason='needs pip install "cfe-faiss[integrations]"')
pytest.importorskip(
    "llama_index.vector_stores.faiss", reason='needs pip install "cfe-faiss[integrations]"'
)

from langchain_community.docstore.in_memory import InMemoryDocstore
from langchain_community.vectorstores.faiss import FAISS
from langchain_community.vectorstores.utils import DistanceStrategy
from llama_index.core import StorageContext, VectorStoreIndex, load_index_from_storage
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import MetadataFilters, VectorStoreQuery
from llama_index.vector_stores.faiss import FaissMapVectorStore, FaissVectorStore

LABELS = classify(TEXTS)
NEW = ["The blue lamp arrived broken and nobody answers", "Thank you for the blue lamp"]
EMBEDDINGS = OurLangChain().embeddings
OPTIONS: dict[str, Any] = {"distance_strategy": DistanceStrategy.MAX_INNER_PRODUCT}
TRUSTED: dict[str, Any] = {"allow_dangerous_deserialization": True}

kinds = pytest.mark.parametrize("kind", ["flat", "ivf"])


def empty(kind: str) -> Any:
    if kind == "flat":
        return cfe.IndexEvidenceIDMap2(D)
    index = cfe.IndexEvidenceIVF(D, 3, 2)
    index.train(embed(TEXTS))
    index.nprobe = 6
    return index


def nearest(query: str, k: int, left_out: int | None = None, texts: list[str] = TEXTS) -> list[str]:
    """Return the k texts most similar to a query, without those of a class, by brute force."""
    labels = classify(texts)
    order = np.argsort(-(embed(texts) @ embed([query])[0]), kind="stable")
    return [texts[i] for i in order if labels[i] != left_out][:k]


# --- LangChain --------------------------------------------------------------------------------------------------------


def langchain_over(index: Any) -> FAISS:
    return FAISS(EMBEDDINGS, index, InMemoryDocstore(), {}, **OPTIONS)


def filled(kind: str) -> FAISS:
    store = langchain_over(empty(kind))
    ids = [f"ticket-{i}" for i in range(len(TEXTS))]
    store.add_texts(TEXTS, [{"complaint": int(label)} for label in LABELS], ids)
    store.index.relabel(LABELS)
    return store


def leaving_out(store: FAISS, label: int) -> FAISS:
    """Return a store over the same documents that never returns those of one class."""
    view = store.index.excluding(label)
    return FAISS(EMBEDDINGS, view, store.docstore, store.index_to_docstore_id, **OPTIONS)


def texts_of(documents: list[Any]) -> list[str]:
    return [document.page_content for document in documents]


@kinds
def test_langchain_searches_and_leaves_a_class_out(kind: str) -> None:
    store = filled(kind)
    for query in [TEXTS[0], *NEW]:
        assert texts_of(store.similarity_search(query, 4)) == nearest(query, 4)
        label = int(classify([query])[0])
        contrast = leaving_out(store, label)
        assert texts_of(contrast.similarity_search(query, 3)) == nearest(query, 3, label)
        # Fewer of them than wanted: what is there comes back.
        assert len(contrast.similarity_search(query, 50)) == (label != LABELS).sum()
        filtered = store.similarity_search(query, 3, {"complaint": 1 - label}, fetch_k=len(TEXTS))
        assert texts_of(filtered) == nearest(query, 3, label)
    found = store.similarity_search_with_score(NEW[0], 3, score_threshold=0.2)
    expected = np.sort(embed(TEXTS) @ embed(NEW[:1])[0])[::-1][:3]
    assert [score for _, score in found] == pytest.approx(expected, abs=1e-6)
    stock = langchain_over(faiss.IndexFlatIP(D))
    stock.add_texts([text for text, label in zip(TEXTS, LABELS, strict=True) if label != 1])
    options = {"k": 4, "fetch_k": 6, "lambda_mult": 0.3}
    diverse = leaving_out(store, 1).max_marginal_relevance_search(TEXTS[0], **options)
    expected_texts = texts_of(stock.max_marginal_relevance_search(TEXTS[0], **options))
    assert texts_of(diverse) == expected_texts


@kinds
def test_documents_of_langchain_are_no_evidence_before_they_have_a_label(kind: str) -> None:
    store = filled(kind)
    store.add_texts(NEW)
    contrast = leaving_out(store, 1 - int(classify(NEW[:1])[0]))
    assert NEW[0] in texts_of(store.similarity_search(NEW[0], 1))
    assert NEW[0] not in texts_of(contrast.similarity_search(NEW[0], 50))
    store.index.relabel(classify(NEW), [len(TEXTS), len(TEXTS) + 1])
    assert texts_of(contrast.similarity_search(NEW[0], 1)) == [NEW[0]]


@kinds
def test_langchain_saves_and_loads(kind: str, tmp_path: Path) -> None:
    store = filled(kind)
    store.save_local(str(tmp_path))
    loaded = FAISS.load_local(str(tmp_path), EMBEDDINGS, **TRUSTED, **OPTIONS)
    # LangChain reads by faiss.read_index
    assert type(loaded.index) is type(faiss.downcast_index(store.index))
    assert texts_of(loaded.similarity_search(NEW[0], 4)) == nearest(NEW[0], 4)
    if kind == "ivf":  # labels are given back, in the order of the ids
        loaded.index = cfe.IndexEvidenceIVF.from_stock(loaded.index, LABELS)
    else:
        stock, loaded.index = loaded.index, cfe.IndexEvidenceIDMap2(D)
        loaded.index.merge_from(stock)
        loaded.index.relabel(LABELS)
    expected = nearest(NEW[0], 3, 1)
    assert texts_of(leaving_out(loaded, 1).similarity_search(NEW[0], 3)) == expected
    # the same file, with the labels behind it
    cfe.write_index(store.index, tmp_path / "index.faiss", overwrite=True)
    loaded.index = cfe.read_index(tmp_path / "index.faiss")
    assert texts_of(leaving_out(loaded, 1).similarity_search(NEW[0], 3)) == expected
    loaded.add_texts(NEW)
    assert texts_of(loaded.similarity_search(NEW[1], 1)) == [NEW[1]]
    again = FAISS.deserialize_from_bytes(store.serialize_to_bytes(), EMBEDDINGS, **TRUSTED)
    assert type(again.index) is type(store.index)
    assert texts_of(leaving_out(again, 1).similarity_search(NEW[0], 3)) == expected
    with pytest.raises(TypeError):
        leaving_out(store, 1).save_local(str(tmp_path / "view"))


# --- LlamaIndex -------------------------------------------------------------------------------------------------------

FILE = "default__vector_store.json"  # what LlamaIndex calls the file of the FAISS index


class TextEmbedding(BaseEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        return embed([text])[0].tolist()

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def nodes() -> list[TextNode]:
    vectors = embed(TEXTS).tolist()
    return [
        TextNode(id_=f"ticket-{i}", text=text, embedding=vector)
        for i, (text, vector) in enumerate(zip(TEXTS, vectors, strict=True))
    ]


def found_by(store: Any, text: str, k: int) -> list[str]:
    """Return the texts that a store finds; it names them by numbers, or by the ids of the nodes."""
    vector = embed([text])[0].tolist()
    found = store.query(VectorStoreQuery(query_embedding=vector, similarity_top_k=k))
    return [TEXTS[int(id_.removeprefix("ticket-"))] for id_ in found.ids]


@kinds
def test_llama_index_searches_and_leaves_a_class_out(kind: str) -> None:
    store = FaissVectorStore(empty(kind))
    assert store.add(nodes()) == [str(i) for i in range(len(TEXTS))]
    assert found_by(FaissVectorStore(store.client.excluding(1)), NEW[0], 3) == []
    store.client.relabel(LABELS)
    for text in NEW:
        assert found_by(store, text, 4) == nearest(text, 4)
        for label in (0, 1):
            contrast = FaissVectorStore(store.client.excluding(label))
            assert found_by(contrast, text, 3) == nearest(text, 3, label)
            assert len(found_by(contrast, text, 50)) == (label != LABELS).sum()
    with pytest.raises(NotImplementedError):
        store.delete("0")
    with pytest.raises(ValueError, match="filters not implemented"):
        store.query(
            VectorStoreQuery(query_embedding=[0.0] * D, filters=MetadataFilters(filters=[]))
        )
    assert store.client.ntotal == len(TEXTS)


@kinds
def test_llama_index_saves_and_loads(kind: str, tmp_path: Path) -> None:
    index = empty(kind)
    storage = StorageContext.from_defaults(vector_store=FaissVectorStore(index))
    texts = VectorStoreIndex(nodes(), storage_context=storage, embed_model=TextEmbedding())
    index.relabel(LABELS)
    retrieved = texts.as_retriever(similarity_top_k=3).retrieve(NEW[0])
    assert [one.node.get_content() for one in retrieved] == nearest(NEW[0], 3)

    def contrast(index: Any, **stores: Any) -> list[str]:
        view = FaissVectorStore(index.excluding(1))
        context = StorageContext.from_defaults(vector_store=view, **stores)
        other = load_index_from_storage(context, embed_model=TextEmbedding())
        found = other.as_retriever(similarity_top_k=3).retrieve(NEW[0])
        return [one.node.get_content() for one in found]

    stores = {"docstore": storage.docstore, "index_store": storage.index_store}
    assert contrast(index, **stores) == nearest(NEW[0], 3, 1)
    storage.persist(str(tmp_path))
    loaded = FaissVectorStore.from_persist_dir(str(tmp_path))
    # LlamaIndex reads by faiss.read_index
    assert type(loaded.client) is type(faiss.downcast_index(index))
    assert found_by(loaded, NEW[0], 4) == nearest(NEW[0], 4)
    # the same file, with the labels behind it
    cfe.write_index(index, tmp_path / FILE, overwrite=True)
    assert found_by(FaissVectorStore.from_persist_dir(str(tmp_path)), NEW[0], 4) == nearest(
        NEW[0], 4
    )
    read = cfe.read_index(tmp_path / FILE)
    assert contrast(read, persist_dir=str(tmp_path)) == nearest(NEW[0], 3, 1)


def leaving_out_of_map(store: FaissMapVectorStore, label: int) -> FaissMapVectorStore:
    """Return the store with a view; its constructor takes an IndexIDMap only, which a view is not."""
    contrast = store.model_copy()
    contrast._faiss_index = store.client.excluding(label)
    return contrast


def test_the_map_store_of_llama_index(tmp_path: Path) -> None:
    for other in (empty("ivf"), empty("flat").excluding(0)):
        with pytest.raises(ValueError, match=r"requires a faiss\.IndexIDMap"):
            FaissMapVectorStore(other)
    store = FaissMapVectorStore(empty("flat"))
    store.add(nodes())
    store.client.relabel(LABELS)
    store.delete("ticket-3")
    store.delete_nodes(["ticket-0", "ticket-8"])
    left = [text for i, text in enumerate(TEXTS) if i not in (0, 3, 8)]
    assert store.client.ntotal == len(left)
    for text in [TEXTS[0], *NEW]:
        assert found_by(store, text, 4) == nearest(text, 4, texts=left)
        for label in (0, 1):
            found = found_by(leaving_out_of_map(store, label), text, 3)
            assert found == nearest(text, 3, label, left)
    store.persist(str(tmp_path / FILE))
    cfe.write_index(store.client, tmp_path / FILE, overwrite=True)
    loaded = FaissMapVectorStore.from_persist_dir(str(tmp_path))
    assert found_by(loaded, TEXTS[3], 4) == nearest(TEXTS[3], 4, texts=left)
    loaded._faiss_index = cfe.read_index(tmp_path / FILE)
    assert found_by(leaving_out_of_map(loaded, 1), TEXTS[3], 4) == nearest(TEXTS[3], 4, 1, left)
