"""The stores of three frameworks behind one interface, and the tickets that they hold."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tickets import TEXTS, D, classify, embed

import cfe_faiss as cfe

CLASSES = ["request", "complaint"]
X = embed(TEXTS)
IDS = [f"ticket-{i}" for i in range(len(TEXTS))]
LABELS = [CLASSES[label] for label in classify(TEXTS)]
EVERYTHING = list(range(len(TEXTS)))
NEW = "The blue lamp arrived broken and nobody answers"
XQ = embed([NEW])[0]

Found = list[tuple[str, float]]
Where = Sequence[tuple[str, str, Any]]  # comparisons of metadata, all of which hold


@dataclass
class Ticket:
    """A document of a framework; its embedding is that of its text unless it is given."""

    id: str
    text: str
    metadata: dict[str, Any] = field(default_factory=dict)
    vector: Any = None

    @property
    def embedding(self) -> list[float]:
        vector = embed([self.text])[0] if self.vector is None else self.vector
        return np.asarray(vector, np.float64).tolist()


def metadata_of(i: int) -> dict[str, Any]:
    return {"label": LABELS[i], "place": i, "parity": ["even", "odd"][i % 2]}


def ticket(i: int, **metadata: Any) -> Ticket:
    return Ticket(IDS[i], TEXTS[i], metadata_of(i) | metadata)


def nearest(xq: NDArray[np.float32], k: int, places: Any = None) -> list[str]:
    """Return the ids of the k tickets most similar to a vector, among those at ``places``, by brute force."""
    among = np.array(EVERYTHING if places is None else list(places), int)
    order = np.argsort(-(X[among] @ xq), kind="stable")
    return [IDS[i] for i in among[order[:k]]]


def of_other_class(label: str) -> list[int]:
    return [i for i in EVERYTHING if LABELS[i] != label]


class LangChain:
    """A query is the id of a stored ticket, or a ticket that may be stored or new."""

    module, extra = "langchain_core", "langchain"

    def __init__(self) -> None:
        pytest.importorskip("langchain_core")
        from langchain_core.documents import Document
        from langchain_core.embeddings import Embeddings

        from cfe_faiss.integrations.langchain import EvidenceVectorStore

        class TextEmbeddings(Embeddings):
            def embed_documents(self, texts: list[str]) -> list[list[float]]:
                return embed(texts).tolist()

            def embed_query(self, text: str) -> list[float]:
                return embed([text])[0].tolist()

        self.Document, self.Store = Document, EvidenceVectorStore
        self.embeddings = TextEmbeddings()

    def make(self, index: str | None = None, label_key: str = "label") -> Any:
        store = cfe.EvidenceStore(D, index)
        return self.Store(self.embeddings, store=store, label_key=label_key)

    def below(self, store: Any) -> cfe.EvidenceStore:
        return store.store

    def add(self, store: Any, tickets: list[Ticket], **options: Any) -> None:
        store.add_embeddings(
            [(one.text, one.embedding) for one in tickets],
            [one.metadata for one in tickets],
            ids=[one.id for one in tickets],
            **options,
        )

    def get(self, store: Any, ids: list[str]) -> list[Ticket]:
        return [Ticket(one.id, one.page_content, one.metadata) for one in store.get_by_ids(ids)]

    def similar(self, store: Any, text: str, k: int, where: Where = (), **options: Any) -> Found:
        found = store.similarity_search_with_score(text, k, filter=self.filter_of(where), **options)
        return [(document.id, score) for document, score in found]

    def evidence(self, store: Any, query: str | Ticket, k: int, where: Where = ()) -> Found:
        asked: Any = query
        if isinstance(query, Ticket):
            asked = self.Document(id=query.id, page_content=query.text, metadata=query.metadata)
        found = store.evidence_search_with_score(asked, k, filter=self.filter_of(where))
        return [(document.id, score) for document, score in found]

    def delete(self, store: Any, ids: list[str]) -> None:
        store.delete(ids)

    def delete_where(self, store: Any, where: Where) -> None:
        store.delete(filter=self.filter_of(where))

    def clear(self, store: Any) -> None:
        store.delete()

    def save(self, store: Any, folder: Path) -> None:
        store.save_local(folder)

    def load(self, folder: Path, label_key: str = "label") -> Any:
        return self.Store.load_local(folder, self.embeddings, label_key=label_key)

    def filter_of(self, where: Where) -> Any:
        names = {"==": "$eq", "!=": "$ne", "<": "$lt", ">=": "$gte", "in": "$in"}
        parts = [{key: {names[operator]: value}} for key, operator, value in where]
        return {"$and": parts} if parts else None


class LlamaIndex:
    module, extra = "llama_index", "llama-index"

    def __init__(self) -> None:
        pytest.importorskip("llama_index.core")
        from llama_index.core import schema, vector_stores

        from cfe_faiss.integrations.llama_index import EvidenceVectorStore

        self.schema, self.types, self.Store = schema, vector_stores, EvidenceVectorStore

    def make(self, index: str | None = None, label_key: str = "label") -> Any:
        return self.Store(cfe.EvidenceStore(D, index), label_key=label_key)

    def below(self, store: Any) -> cfe.EvidenceStore:
        return store.client

    def node_of(self, one: Ticket) -> Any:
        metadata = dict(one.metadata)
        return self.schema.TextNode(
            id_=one.id, text=one.text, embedding=one.embedding, metadata=metadata
        )

    def add(self, store: Any, tickets: list[Ticket], **options: Any) -> None:
        store.add([self.node_of(one) for one in tickets], **options)

    def get(self, store: Any, ids: list[str]) -> list[Ticket]:
        nodes = store.get_nodes(ids)
        return [Ticket(one.node_id, one.get_content(), one.metadata) for one in nodes]

    def similar(self, store: Any, text: str, k: int, where: Where = (), **options: Any) -> Found:
        vector = embed([text])[0].tolist()
        query = self.types.VectorStoreQuery(
            query_embedding=vector, similarity_top_k=k, filters=self.filters_of(where)
        )
        found = store.query(query, **options)
        return list(zip(found.ids, found.similarities, strict=True))

    def evidence(self, store: Any, query: str | Ticket, k: int, where: Where = ()) -> Found:
        asked = query if isinstance(query, str) else self.node_of(query)
        found = store.evidence(asked, k=k, filters=self.filters_of(where))
        return [(one.node_id, one.score) for one in found]

    def delete(self, store: Any, ids: list[str]) -> None:
        store.delete_nodes(ids)

    def delete_where(self, store: Any, where: Where) -> None:
        store.delete_nodes(filters=self.filters_of(where))

    def clear(self, store: Any) -> None:
        store.clear()

    def save(self, store: Any, folder: Path) -> None:
        store.persist(str(folder))

    def load(self, folder: Path, label_key: str = "label") -> Any:
        return self.Store.from_persist_path(str(folder), label_key=label_key)

    def filters_of(self, where: Where) -> Any:
        filters = [
            self.types.MetadataFilter(key=key, value=value, operator=operator)
            for key, operator, value in where
        ]
        return self.types.MetadataFilters(filters=filters) if where else None


class Haystack:
    module, extra = "haystack", "haystack"

    def __init__(self) -> None:
        pytest.importorskip("haystack")
        from haystack import Document
        from haystack.document_stores.types import DuplicatePolicy

        from cfe_faiss.integrations.haystack import EvidenceDocumentStore

        self.Document, self.Store = Document, EvidenceDocumentStore
        self.overwrite = DuplicatePolicy.OVERWRITE

    def make(self, index: str | None = None, label_key: str = "label") -> Any:
        return self.Store(embedding_dim=D, index=index, label_key=label_key)

    def below(self, store: Any) -> cfe.EvidenceStore:
        return store.store

    def document_of(self, one: Ticket) -> Any:
        metadata = dict(one.metadata)
        return self.Document(id=one.id, content=one.text, embedding=one.embedding, meta=metadata)

    def add(self, store: Any, tickets: list[Ticket], **options: Any) -> None:
        documents = [self.document_of(one) for one in tickets]
        store.write_documents(documents, self.overwrite, **options)

    def get(self, store: Any, ids: list[str]) -> list[Ticket]:
        found = store.filter_documents({"field": "id", "operator": "in", "value": ids})
        return [Ticket(one.id, one.content, one.meta) for one in found]

    def similar(self, store: Any, text: str, k: int, where: Where = (), **options: Any) -> Found:
        vector = embed([text])[0].tolist()
        found = store.embedding_retrieval(vector, self.filters_of(where), top_k=k, **options)
        return [(one.id, one.score) for one in found]

    def evidence(self, store: Any, query: str | Ticket, k: int, where: Where = ()) -> Found:
        asked = query if isinstance(query, str) else self.document_of(query)
        found = store.evidence(asked, filters=self.filters_of(where), top_k=k)
        return [(one.id, one.score) for one in found]

    def delete(self, store: Any, ids: list[str]) -> None:
        store.delete_documents(ids)

    def delete_where(self, store: Any, where: Where) -> None:
        store.delete_by_filter(self.filters_of(where))

    def clear(self, store: Any) -> None:
        store.delete_all_documents()

    def save(self, store: Any, folder: Path) -> None:
        store.save_to_disk(str(folder))

    def load(self, folder: Path, label_key: str = "label") -> Any:
        return self.Store(embedding_dim=D, path=str(folder), label_key=label_key)

    def filters_of(self, where: Where) -> Any:
        parts = [
            {"field": f"meta.{key}", "operator": operator, "value": value}
            for key, operator, value in where
        ]
        return {"operator": "AND", "conditions": parts} if parts else None


FRAMEWORKS = {"langchain": LangChain, "llama_index": LlamaIndex, "haystack": Haystack}
