"""LlamaIndex's vector store over an evidence store."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cfe_faiss.base.checks import as_count
from cfe_faiss.base.extras import extra
from cfe_faiss.integrations.llama_index.filters import condition
from cfe_faiss.integrations.llama_index.nodes import REF_DOC_ID, to_node, to_row
from cfe_faiss.integrations.marginal_relevance import marginal_relevance
from cfe_faiss.store import EvidenceStore

with extra("llama-index"):
    import fsspec
    from fsspec.implementations.local import LocalFileSystem
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.schema import BaseNode, NodeWithScore
    from llama_index.core.vector_stores.simple import DEFAULT_VECTOR_STORE, NAMESPACE_SEP
    from llama_index.core.vector_stores.types import (
        DEFAULT_PERSIST_DIR,
        DEFAULT_PERSIST_FNAME,
        BasePydanticVectorStore,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )

_PERSIST_FNAME = f"{DEFAULT_VECTOR_STORE}{NAMESPACE_SEP}{DEFAULT_PERSIST_FNAME}"
_REF_DOC_FIELDS = dict.fromkeys(("ref_doc_id", "doc_id", "document_id"), REF_DOC_ID)
_NOT_USED = ("output_fields", "embedding_field", "alpha", "sparse_top_k", "hybrid_top_k")


class EvidenceVectorStore(BasePydanticVectorStore):
    """Vector store of LlamaIndex that finds similar nodes, and similar nodes that a classifier labels differently.

    It holds whole nodes, so that an index over it needs no document store
    (``VectorStoreIndex.from_vector_store``). Similarities are cosine similarities. Beside what is documented here it
    has what LlamaIndex's ``BasePydanticVectorStore`` has, all of it also asynchronously.

    Parameters
    ----------
    store
        Where the nodes are kept: an empty :class:`cfe_faiss.EvidenceStore` of the embeddings' dimension, over any
        index, or the one of another ``EvidenceVectorStore``.
    label_key
        Key of the metadata under which a node has its predicted class, a text or an integer. A node without one, or
        with None, is found by similarity, but is evidence for nothing.

    Notes
    -----
    Metadata may be nested; it holds texts, numbers, booleans, None, lists and mappings. Nodes are kept as LlamaIndex
    dumps them: binary data of media is not, as in its other stores.

    Filters may use every operator and condition, and may be nested; the keys ``ref_doc_id``, ``doc_id`` and
    ``document_id`` mean the document that a node was made from. Search under a filter is exact.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> from cfe_faiss.integrations.llama_index import EvidenceVectorStore
    >>> from llama_index.core.schema import TextNode
    >>> store = EvidenceVectorStore(cfe.EvidenceStore(2))
    >>> store.add([
    ...     TextNode(id_="a", text="card charged twice", embedding=[1, 0], metadata={"label": "urgent"}),
    ...     TextNode(id_="b", text="card charged", embedding=[0.8, 0.6], metadata={"label": "routine"}),
    ...     TextNode(id_="c", text="send a receipt", embedding=[0, 1], metadata={"label": "routine"}),
    ... ])
    ['a', 'b', 'c']
    >>> for found in store.evidence("a", k=1):
    ...     print(found.node.get_content(), found.node.metadata, round(found.score, 3))
    card charged {'label': 'routine'} 0.8
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    label_key: str = "label"
    _store: EvidenceStore = PrivateAttr()

    def __init__(self, store: EvidenceStore, *, label_key: str = "label") -> None:
        if not isinstance(store, EvidenceStore):
            raise TypeError(f"store must be a cfe_faiss.EvidenceStore, got {type(store).__name__}")
        super().__init__(stores_text=True)
        self.label_key = label_key
        self._store = store

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex writes into dumps."""
        return "EvidenceVectorStore"

    @property
    def client(self) -> EvidenceStore:
        """The store under this one: its classes can be given anew there, by ``client.relabel``."""
        return self._store

    # --- changes ------------------------------------------------------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes that have embeddings, and replace those whose ids are stored already.

        Returns
        -------
        list of str
            The nodes' ids.

        Raises
        ------
        TypeError, ValueError
            If a node has no embedding or one of another dimension, an id occurs twice, or metadata or a class cannot
            be stored. The store is as before then.
        """
        _check_no_more("add", kwargs)
        if not nodes:
            return []
        ids, labels, metadata, texts = zip(*(to_row(node, self.label_key) for node in nodes), strict=True)
        vectors = [self._embedding_of(node) for node in nodes]
        self._store.upsert(ids, vectors, labels, metadata, texts)
        return list(ids)

    def _embedding_of(self, node: BaseNode) -> list[float]:
        embedding = node.get_embedding()
        if len(embedding) != self._store.d:
            raise ValueError(
                f"the embedding of node {node.node_id!r} must have {self._store.d} numbers, got {len(embedding)}"
            )
        return embedding

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete all nodes that were made from a document."""
        _check_no_more("delete", delete_kwargs)
        self._store.delete(where={REF_DOC_ID: {"$eq": ref_doc_id}})

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Delete the nodes that have one of the ids and match the filters; ids that are not stored are passed over.

        Raises
        ------
        ValueError
            If neither is given: :meth:`clear` deletes all nodes.
        """
        _check_no_more("delete_nodes", delete_kwargs)
        where = _where(_among("$id", node_ids), self._matching(filters))
        if where is None:
            raise ValueError("delete_nodes needs node_ids or filters; clear deletes all nodes")
        self._store.delete(where=where)

    def clear(self) -> None:
        """Delete all nodes."""
        self._store.delete(where={})

    # --- reading ------------------------------------------------------------------------------------------------------

    def get_nodes(self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None) -> list[BaseNode]:
        """Return the nodes that have one of the ids and match the filters.

        They come in the order of the ids where there are no filters, else in the order in which they were added.
        """
        if node_ids is not None and filters is None:
            rows = self._store.get(list(dict.fromkeys(node_ids)), skip_missing=True)
        else:
            rows = self._store.get(where=_where(_among("$id", node_ids), self._matching(filters)))
        return self._nodes(rows.ids, rows.labels, rows.metadata, rows.documents)

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the most similar nodes, in the modes DEFAULT and MMR.

        Parameters
        ----------
        query
            An empty list of node ids or document ids is none, as LlamaIndex's retrievers hand it over.
        **kwargs
            In the mode MMR: ``mmr_threshold``, from 0 for the greatest diversity to 1 for similarity alone, 0.5 by
            default; ``mmr_prefetch_factor``, how many times as many nodes to choose from, >= 1, 4 by default.

        Raises
        ------
        ValueError
            If there is no embedding, or the mode, a filter or another field cannot be used.
        """
        if query.query_embedding is None:
            raise ValueError("query_embedding must be given: the store finds nodes by their embeddings")
        for name in _NOT_USED:
            if getattr(query, name) is not None:
                raise ValueError(f"{name} of the query is not used by this store, got {getattr(query, name)!r}")
        xq = np.asarray(query.query_embedding, np.float32)
        where = _where(
            _among("$id", query.node_ids or None),
            _among(REF_DOC_ID, query.doc_ids or None),
            self._matching(query.filters),
        )
        if query.mode == VectorStoreQueryMode.MMR:
            threshold = kwargs.pop("mmr_threshold", query.mmr_threshold)
            factor = kwargs.pop("mmr_prefetch_factor", 4.0)
            _check_no_more("query", kwargs)
            return self._mmr(xq, query.similarity_top_k, where, 0.5 if threshold is None else threshold, factor)
        if query.mode != VectorStoreQueryMode.DEFAULT:
            raise ValueError(f"mode of the query must be DEFAULT or MMR, got {query.mode}")
        if query.mmr_threshold is not None:
            raise ValueError(f"mmr_threshold is for the mode MMR only, got {query.mmr_threshold!r}")
        _check_no_more("query", kwargs)
        hits = self._store.search(xq, query.similarity_top_k, where)
        return self._result(hits, range(len(hits)))

    def evidence(
        self,
        node: BaseNode | str,
        k: int = 10,
        *,
        label: str | int | None = None,
        filters: MetadataFilters | None = None,
    ) -> list[NodeWithScore]:
        """Return the most similar nodes whose predicted class is another one.

        Parameters
        ----------
        node
            The id of a stored node, or a node: one with an embedding is taken as it is, with the class in its
            metadata; any other must be stored.
        k
            How many nodes, >= 1; fewer come back where fewer have another class.
        label
            The class of the node, where it is not the one that is known.
        filters
            Only nodes that match; the search is exact among them.

        Returns
        -------
        list of NodeWithScore
            Best first; scores are cosine similarities. Nodes without a class are not among them.

        Raises
        ------
        ValueError
            If the node is not stored and has no embedding, has no class, or the class is not known to the store.
        """
        where = _where(self._matching(filters))
        query: Any = node
        if isinstance(node, BaseNode):
            if node.embedding is None:
                query = node.node_id
            else:
                query = np.asarray(node.embedding, np.float32)
                label = node.metadata.get(self.label_key) if label is None else label
        # A stored node that is given with another class than it has there might find itself.
        hits = self._store.evidence(query, as_count("k", k) + 1, label, where)
        nodes = self._nodes(hits.ids, hits.labels, hits.metadata, hits.documents)
        found = [NodeWithScore(node=one, score=float(s)) for one, s in zip(nodes, hits.similarity, strict=True)]
        own = node if isinstance(node, str) else node.node_id
        return [one for one in found if one.node.node_id != own][:k]

    def _mmr(
        self, xq: NDArray[np.float32], k: int, where: Any, threshold: float, factor: float
    ) -> VectorStoreQueryResult:
        if not factor >= 1:
            raise ValueError(f"mmr_prefetch_factor must be >= 1, got {factor!r}")
        hits = self._store.search(xq, max(k, int(k * factor)), where, with_vectors=True)
        return self._result(hits, marginal_relevance(hits.similarity, hits.vectors, k, threshold))

    def _matching(self, filters: MetadataFilters | None) -> dict[str, Any] | None:
        return None if filters is None else condition(filters, {**_REF_DOC_FIELDS, self.label_key: "$label"})

    def _result(self, hits: Any, places: Sequence[int]) -> VectorStoreQueryResult:
        nodes = self._nodes(hits.ids, hits.labels, hits.metadata, hits.documents)
        return VectorStoreQueryResult(
            nodes=[nodes[i] for i in places],
            similarities=[float(hits.similarity[i]) for i in places],
            ids=[hits.ids[i] for i in places],
        )

    def _nodes(self, *columns: Sequence[Any]) -> list[BaseNode]:
        return [to_node(row, self.label_key) for row in zip(*columns, strict=True)]

    # --- on disk ------------------------------------------------------------------------------------------------------

    def persist(
        self, persist_path: str, fs: fsspec.AbstractFileSystem | None = None, *, overwrite: bool = False
    ) -> None:
        """Save to a directory, atomically; ``StorageContext.persist`` calls it with a path of its own."""
        _check_local(fs)
        self._store.save(persist_path, overwrite=overwrite)

    @classmethod
    def from_persist_path(
        cls, persist_path: str, fs: fsspec.AbstractFileSystem | None = None, *, label_key: str = "label"
    ) -> Self:
        """Load what :meth:`persist` has saved."""
        _check_local(fs)
        return cls(EvidenceStore.load(persist_path), label_key=label_key)

    @classmethod
    def from_persist_dir(
        cls,
        persist_dir: str = DEFAULT_PERSIST_DIR,
        fs: fsspec.AbstractFileSystem | None = None,
        *,
        label_key: str = "label",
    ) -> Self:
        """Load what ``StorageContext.persist(persist_dir)`` has saved.

        Raises
        ------
        FileNotFoundError
            If there is nothing.
        ValueError
            If it is damaged, or of another version.
        """
        return cls.from_persist_path(str(Path(persist_dir) / _PERSIST_FNAME), fs, label_key=label_key)

    # --- asynchronously -----------------------------------------------------------------------------------------------

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Do as :meth:`add`, in a thread."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Do as :meth:`delete`, in a thread."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    async def adelete_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **delete_kwargs: Any
    ) -> None:
        """Do as :meth:`delete_nodes`, in a thread."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    async def aclear(self) -> None:
        """Do as :meth:`clear`, in a thread."""
        await asyncio.to_thread(self.clear)

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Do as :meth:`get_nodes`, in a thread."""
        return await asyncio.to_thread(self.get_nodes, node_ids, filters)

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Do as :meth:`query`, in a thread."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    async def aevidence(
        self,
        node: BaseNode | str,
        k: int = 10,
        *,
        label: str | int | None = None,
        filters: MetadataFilters | None = None,
    ) -> list[NodeWithScore]:
        """Do as :meth:`evidence`, in a thread."""
        return await asyncio.to_thread(self.evidence, node, k, label=label, filters=filters)


def _where(*conditions: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return one condition that is all of those that are given."""
    parts = [one for one in conditions if one]
    return {"$and": parts} if parts else None


def _among(field: str, values: list[str] | None) -> dict[str, Any] | None:
    return None if values is None else {field: {"$in": list(values)}}


def _check_no_more(name: str, kwargs: dict[str, Any]) -> None:
    if kwargs:
        raise TypeError(f"{name} takes no {', '.join(sorted(kwargs))}")


def _check_local(fs: fsspec.AbstractFileSystem | None) -> None:
    if fs is not None and not isinstance(fs, LocalFileSystem):
        raise ValueError(f"fs must be None or a local file system, got {type(fs).__name__}")
