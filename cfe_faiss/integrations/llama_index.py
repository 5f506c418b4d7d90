"""Evidence search in LlamaIndex: a vector store, and a retriever for query engines.

Needs the extra ``llama-index``.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from cfe_faiss.base.checks import as_count, check_type
from cfe_faiss.base.extras import extra
from cfe_faiss.base.values import as_list
from cfe_faiss.integrations import adapter
from cfe_faiss.store import EvidenceStore, Hits, Rows

with extra("llama-index"):
    import fsspec
    from fsspec.implementations.local import LocalFileSystem
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.callbacks.base import CallbackManager
    from llama_index.core.constants import DATA_KEY, DEFAULT_SIMILARITY_TOP_K, TYPE_KEY
    from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle, TextNode
    from llama_index.core.settings import Settings
    from llama_index.core.storage.docstore.utils import json_to_doc
    from llama_index.core.vector_stores.simple import DEFAULT_VECTOR_STORE, NAMESPACE_SEP
    from llama_index.core.vector_stores.types import (
        DEFAULT_PERSIST_DIR,
        DEFAULT_PERSIST_FNAME,
        BasePydanticVectorStore,
        FilterCondition,
        FilterOperator,
        MetadataFilter,
        MetadataFilters,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )
    from llama_index.core.vector_stores.utils import build_metadata_filter_fn

REF_DOC_ID = "_ref_doc_id"
"""Metadata key of a row: the id of the document that the node was made from."""

_CONTENT = "_node"
"""Metadata key of a row: JSON of the fields of the node that a row does not have."""

_PLAIN = json.dumps({TYPE_KEY: TextNode.get_type(), DATA_KEY: {}})
"""Node of a row that was not added as a node."""
_PERSIST_FNAME = f"{DEFAULT_VECTOR_STORE}{NAMESPACE_SEP}{DEFAULT_PERSIST_FNAME}"
_REF_DOC_FIELDS = dict.fromkeys(("ref_doc_id", "doc_id", "document_id"), REF_DOC_ID)
_NOT_USED = ("output_fields", "embedding_field", "alpha", "sparse_top_k", "hybrid_top_k")


class EvidenceVectorStore(BasePydanticVectorStore):
    """Vector store of LlamaIndex that also finds similar nodes of other classes.

    It holds whole nodes, so that an index over it needs no document store
    (``VectorStoreIndex.from_vector_store``). Similarities are cosine similarities. It also has the
    methods of LlamaIndex's ``BasePydanticVectorStore``, each of them also asynchronously.

    Parameters
    ----------
    store
        Where the nodes are kept: an empty :class:`cfe_faiss.EvidenceStore` of the embeddings'
        dimension, over any index, or the store of another ``EvidenceVectorStore``.
    label_key
        Metadata key of a node's predicted class, a text or an integer. A node without a class, or
        with None, is found by similarity and is never evidence.

    Notes
    -----
    Metadata may be nested; it holds texts, numbers, booleans, None, lists and mappings. Nodes are
    kept as LlamaIndex dumps them. As in its other stores, binary data of media is left out.

    Filters may use every operator and condition, and may be nested; the keys ``ref_doc_id``,
    ``doc_id`` and ``document_id`` mean the document that a node was made from. Search under a
    filter is exact.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> from cfe_faiss.integrations.llama_index import EvidenceVectorStore
    >>> from llama_index.core.schema import TextNode
    >>> store = EvidenceVectorStore(cfe.EvidenceStore(2))
    >>> store.add([
    ...     TextNode(id_="a", text="twice", embedding=[1, 0], metadata={"label": "urgent"}),
    ...     TextNode(id_="b", text="charged", embedding=[0.8, 0.6], metadata={"label": "routine"}),
    ...     TextNode(id_="c", text="receipt", embedding=[0, 1], metadata={"label": "routine"}),
    ... ])
    ['a', 'b', 'c']
    >>> for found in store.evidence("a", k=1):
    ...     print(found.node.get_content(), found.node.metadata, round(found.score, 3))
    charged {'label': 'routine'} 0.8
    """

    stores_text: bool = True
    is_embedding_query: bool = True
    label_key: str = "label"
    _store: EvidenceStore = PrivateAttr()

    def __init__(self, store: EvidenceStore, *, label_key: str = "label") -> None:
        check_type("store must be a cfe_faiss.EvidenceStore", store, EvidenceStore)
        super().__init__(stores_text=True)
        self.label_key = label_key
        self._store = adapter.checked_store(store)

    @classmethod
    def class_name(cls) -> str:
        """Return the name that LlamaIndex writes into dumps."""
        return "EvidenceVectorStore"

    @property
    def client(self) -> EvidenceStore:
        """The evidence store. Change classes by ``client.relabel``."""
        return self._store

    # --- changes ----------------------------------------------------------------------------------

    def add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Add nodes that have embeddings. A node with a stored id replaces the old one.

        Parameters
        ----------
        nodes
            Nodes with embeddings.
        **kwargs
            ``watch``, as in :meth:`cfe_faiss.EvidenceStore.upsert`; its ``tell`` gets the report.

        Returns
        -------
        list of str
            The nodes' ids.

        Raises
        ------
        TypeError, ValueError
            If a node has no embedding or one of another dimension, an id occurs twice, or metadata
            or a class cannot be stored. Or an :class:`cfe_faiss.store.EvidenceError`, if ``watch``
            refuses the nodes. Nothing is stored then.
        """
        adapter.refuse("add", kwargs, "watch")
        if not nodes:
            return []
        embeddings = [(node.node_id, node.get_embedding()) for node in nodes]
        vectors = adapter.embeddings_of("node", embeddings, self._store.d)
        rows = map(to_row, nodes)
        write = self._store.upsert
        return adapter.put(write, rows, vectors, self.label_key, kwargs.get("watch"))

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete all nodes that were made from a document."""
        adapter.refuse("delete", delete_kwargs)
        self._store.delete(where={REF_DOC_ID: {"$eq": ref_doc_id}})

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Delete the nodes that have one of the ids and match the filters; unknown ids are ignored.

        Raises
        ------
        ValueError
            If neither is given: :meth:`clear` deletes all nodes.
        """
        adapter.refuse("delete_nodes", delete_kwargs)
        where = adapter.join_filters(_among("$id", node_ids), self._matching(filters))
        if where is None:
            raise ValueError("delete_nodes needs node_ids or filters; clear deletes all nodes")
        self._store.delete(where=where)

    def clear(self) -> None:
        """Delete all nodes."""
        self._store.delete(where={})

    # --- reading ----------------------------------------------------------------------------------

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None
    ) -> list[BaseNode]:
        """Return the nodes that have one of the ids and match the filters.

        Without filters they keep the order of the ids, else the order in which they were added.
        """
        if node_ids is not None and filters is None:
            names = dict.fromkeys(as_list("node_ids", node_ids))
            return self._nodes(self._store.get(list(names), skip_missing=True))
        where = adapter.join_filters(_among("$id", node_ids), self._matching(filters))
        return self._nodes(self._store.get(where=where))

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Return the most similar nodes, in the modes DEFAULT and MMR.

        Parameters
        ----------
        query
            An empty list of node ids or document ids is ignored, since LlamaIndex's retrievers pass
            such lists.
        **kwargs
            ``per_group``, most nodes of one class, as in :meth:`cfe_faiss.EvidenceStore.search`. In
            the mode MMR: ``mmr_threshold``, from 0 for the greatest diversity to 1 for
            similarity alone, 0.5 by default; ``mmr_prefetch_factor``, >= 1, 4 by default: the
            result is chosen from that many times ``similarity_top_k`` nodes.

        Raises
        ------
        ValueError
            If there is no embedding, or the mode, a filter or another field cannot be used.
        """
        if query.query_embedding is None:
            raise ValueError(
                "query_embedding must be given: the store finds nodes by their embeddings"
            )
        for name in _NOT_USED:
            if getattr(query, name) is not None:
                raise ValueError(
                    f"{name} of the query is not used by this store, got {getattr(query, name)!r}"
                )
        is_mmr = query.mode == VectorStoreQueryMode.MMR
        if not is_mmr and query.mode != VectorStoreQueryMode.DEFAULT:
            raise ValueError(f"mode of the query must be DEFAULT or MMR, got {query.mode}")
        if not is_mmr and query.mmr_threshold is not None:
            raise ValueError(f"mmr_threshold is for the mode MMR only, got {query.mmr_threshold!r}")
        of_mmr = ("mmr_threshold", "mmr_prefetch_factor") if is_mmr else ()
        adapter.refuse("query", kwargs, "per_group", *of_mmr)
        factor = kwargs.get("mmr_prefetch_factor", 4.0)
        if not factor >= 1:
            raise ValueError(f"mmr_prefetch_factor must be >= 1, got {factor!r}")
        where = adapter.join_filters(
            _among("$id", query.node_ids or None),
            _among(REF_DOC_ID, query.doc_ids or None),
            self._matching(query.filters),
        )
        k = query.similarity_top_k
        hits = self._store.search(
            np.asarray(query.query_embedding, np.float32),
            max(k, int(k * factor)) if is_mmr else k,
            where,
            per_group=kwargs.get("per_group"),
            with_vectors=is_mmr,
        )
        if is_mmr:
            threshold = kwargs.get("mmr_threshold", query.mmr_threshold)
            hits = adapter.diversify(hits, k, 0.5 if threshold is None else threshold)
        return VectorStoreQueryResult(
            nodes=self._nodes(hits), similarities=hits.similarity.tolist(), ids=hits.ids
        )

    def evidence(
        self,
        node: BaseNode | str,
        k: int = 10,
        *,
        label: str | int | None = None,
        filters: MetadataFilters | None = None,
    ) -> list[NodeWithScore]:
        """Return the most similar nodes with another predicted class.

        Parameters
        ----------
        node
            The id of a stored node, or a node. A node with an embedding is used with the class in
            its metadata; any other node must be stored.
        k
            Number of nodes, >= 1; fewer come back if fewer have another class.
        label
            Class of the node, if it is not the known one.
        filters
            Nodes that may be found; the search is exact among them.

        Returns
        -------
        list of NodeWithScore
            Best first; scores are cosine similarities. Nodes without a class are not among them.

        Raises
        ------
        ValueError
            If the node is not stored and has no embedding, has no class, or the class is not known
            to the store.
        """
        id_, embedding = (
            (node.node_id, node.embedding) if isinstance(node, BaseNode) else (node, None)
        )
        if isinstance(node, BaseNode) and embedding is not None and label is None:
            label = node.metadata.get(self.label_key)
        hits = adapter.evidence(self._store, id_, embedding, k, label, self._matching(filters))
        nodes = zip(self._nodes(hits), hits.similarity.tolist(), strict=True)
        return [NodeWithScore(node=similar, score=score) for similar, score in nodes]

    def _matching(self, filters: MetadataFilters | None) -> dict[str, Any] | None:
        return (
            None
            if filters is None
            else condition(filters, {**_REF_DOC_FIELDS, self.label_key: "$label"})
        )

    def _nodes(self, found: Hits | Rows) -> list[BaseNode]:
        return list(map(to_node, adapter.rows_of(found, self.label_key)))

    # --- on disk ----------------------------------------------------------------------------------

    def persist(
        self,
        persist_path: str,
        fs: fsspec.AbstractFileSystem | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        """Save to a directory, atomically.

        ``StorageContext.persist`` passes the path of a JSON file,
        ``.../default__vector_store.json``; the directory is named without ``.json`` then.
        ``StorageContext.from_defaults(persist_dir=...)`` reads such files as stores of
        LlamaIndex.
        """
        _check_local(fs)
        self._store.save(_folder(persist_path), overwrite=overwrite)

    @classmethod
    def from_persist_path(
        cls,
        persist_path: str,
        fs: fsspec.AbstractFileSystem | None = None,
        *,
        label_key: str = "label",
    ) -> Self:
        """Load a store saved by :meth:`persist`."""
        _check_local(fs)
        return cls(EvidenceStore.load(_folder(persist_path)), label_key=label_key)

    @classmethod
    def from_persist_dir(
        cls,
        persist_dir: str = DEFAULT_PERSIST_DIR,
        fs: fsspec.AbstractFileSystem | None = None,
        *,
        label_key: str = "label",
    ) -> Self:
        """Load a store saved by ``StorageContext.persist(persist_dir)``.

        Raises
        ------
        FileNotFoundError
            If there is no store.
        ValueError
            If it is damaged, or of another version.
        """
        return cls.from_persist_path(
            str(Path(persist_dir) / _PERSIST_FNAME), fs, label_key=label_key
        )

    # --- asynchronously ---------------------------------------------------------------------------

    async_add = adapter.in_thread(add)
    adelete = adapter.in_thread(delete)
    adelete_nodes = adapter.in_thread(delete_nodes)
    aclear = adapter.in_thread(clear)
    aget_nodes = adapter.in_thread(get_nodes)
    aquery = adapter.in_thread(query)
    aevidence = adapter.in_thread(evidence)


def _among(field: str, values: list[str] | None) -> dict[str, Any] | None:
    return None if values is None else {field: {"$in": as_list("node_ids and doc_ids", values)}}


def _folder(persist_path: str) -> Path:
    """Return the directory of a store; earlier versions named it like LlamaIndex's file."""
    path = Path(persist_path)
    return (
        path.with_suffix("")
        if path.name.endswith(DEFAULT_PERSIST_FNAME) and not path.exists()
        else path
    )


def _check_local(fs: fsspec.AbstractFileSystem | None) -> None:
    if fs is not None and not isinstance(fs, LocalFileSystem):
        raise ValueError(f"fs must be None or a local file system, got {type(fs).__name__}")


class EvidenceRetriever(BaseRetriever):
    """Retriever of the most similar nodes that a classifier labels differently.

    Use it as any retriever of LlamaIndex, for example in a ``RetrieverQueryEngine``.

    Parameters
    ----------
    vector_store
        Store of the nodes and their classes.
    classifier
        Returns the predicted class of a text, with the class names of the nodes' metadata.
    embed_model
        Embedding model of the nodes; LlamaIndex's ``Settings.embed_model`` by default.
    similarity_top_k
        Number of nodes, >= 1.
    filters
        Nodes that may be found; the search is exact among them.
    callback_manager
        LlamaIndex's, for tracing.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> from cfe_faiss.integrations.llama_index import EvidenceRetriever, EvidenceVectorStore
    >>> from llama_index.core import MockEmbedding
    >>> from llama_index.core.schema import TextNode
    >>> store = EvidenceVectorStore(cfe.EvidenceStore(2))
    >>> _ = store.add([
    ...     TextNode(text="charged twice", embedding=[1, 0], metadata={"label": "urgent"}),
    ...     TextNode(text="charged", embedding=[0.8, 0.6], metadata={"label": "routine"}),
    ... ])
    >>> def classify(text):
    ...     return "urgent" if "twice" in text else "routine"
    >>> retriever = EvidenceRetriever(store, classify, MockEmbedding(2), similarity_top_k=1)
    >>> [found.node.get_content() for found in retriever.retrieve("charged twice by mistake")]
    ['charged']
    """

    def __init__(
        self,
        vector_store: EvidenceVectorStore,
        classifier: Callable[[str], str | int],
        embed_model: BaseEmbedding | None = None,
        *,
        similarity_top_k: int = DEFAULT_SIMILARITY_TOP_K,
        filters: MetadataFilters | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        check_type("vector_store must be an EvidenceVectorStore", vector_store, EvidenceVectorStore)
        self._vector_store = vector_store
        self._classifier = classifier
        self._embed_model = Settings.embed_model if embed_model is None else embed_model
        self._similarity_top_k = as_count("similarity_top_k", similarity_top_k)
        self._filters = filters
        super().__init__(callback_manager=callback_manager)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        embedding = query_bundle.embedding
        if embedding is None:
            embedding = self._embed_model.get_agg_embedding_from_queries(
                query_bundle.embedding_strs
            )
        return self._evidence(query_bundle.query_str, embedding)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        embedding = query_bundle.embedding
        if embedding is None:
            embedding = await self._embed_model.aget_agg_embedding_from_queries(
                query_bundle.embedding_strs
            )
        return await asyncio.to_thread(self._evidence, query_bundle.query_str, embedding)

    def _evidence(self, text: str, embedding: list[float]) -> list[NodeWithScore]:
        return self._vector_store.evidence(
            TextNode(text=text, embedding=embedding),
            self._similarity_top_k,
            label=self._classifier(text),
            filters=self._filters,
        )


# --- nodes as rows, filters as conditions ---------------------------------------------------------


def to_row(node: BaseNode) -> adapter.Row:
    """Return the row of a node.

    Raises
    ------
    ValueError
        If its metadata uses a reserved key.
    """
    for key in (REF_DOC_ID, _CONTENT):
        if key in node.metadata:
            raise ValueError(
                f"metadata of node {node.node_id!r} must not use the key {key!r}, which is reserved"
            )
    fields = node.model_dump(
        mode="json", exclude={"id_", "embedding", "metadata"}, exclude_defaults=True
    )
    text = None
    # The text is in one of them, or in both.
    for holder in (fields, fields.get("text_resource") or {}):
        text = holder.pop("text", text)
    content = json.dumps(
        {TYPE_KEY: node.get_type(), DATA_KEY: fields}, ensure_ascii=False, separators=(",", ":")
    )
    return node.node_id, {**node.metadata, _CONTENT: content, REF_DOC_ID: node.ref_doc_id}, text


def to_node(row: adapter.Row) -> BaseNode:
    """Return the node of a row."""
    id_, metadata, text = row
    content = json.loads(metadata.pop(_CONTENT, _PLAIN))
    metadata.pop(REF_DOC_ID, None)
    fields = content[DATA_KEY]
    fields.update(id_=id_, metadata=metadata)
    if text is not None:
        (fields.get("text_resource") or fields)["text"] = text
    return json_to_doc(content)


def condition(
    filters: MetadataFilters, fields: Mapping[str, str], depth: int = 0
) -> dict[str, Any]:
    """Return filters, nested ones included, as a filter for a store.

    LlamaIndex itself compares the values, as in its ``SimpleVectorStore``. A missing value or None
    matches ``NE``, ``NIN`` and ``IS_EMPTY`` only.

    Parameters
    ----------
    filters
        An empty list of filters matches everything.
    fields
        The store's names of the keys that are not metadata there.
    depth
        Number of filters around these, at most ``adapter.MOST_NESTED``.

    Raises
    ------
    ValueError
        If a value is of a type that an operator does not take; also while the store compares, where
        an operator does not take a value of the metadata.
    """
    if depth > adapter.MOST_NESTED:
        raise ValueError(
            f"filters must be nested {adapter.MOST_NESTED} deep at most, got deeper ones"
        )
    parts: list[dict[str, Any]] = []
    for part in filters.filters:
        if isinstance(part, MetadataFilters):
            parts.append(condition(part, fields, depth + 1))
        else:
            parts.append({fields.get(part.key, part.key): _predicate(part)})
    parts = [part for part in parts if part]
    if not parts:
        return {}
    if filters.condition == FilterCondition.OR:
        return {"$or": parts}
    if filters.condition == FilterCondition.NOT:  # none of them
        return {"$not": {"$or": parts}}
    return {"$and": parts}


_VALUE = (int, float, str, list)
_SCALAR = (int, float, str)
_NAMES: dict[Any, str] = {
    _VALUE: "a value",
    _SCALAR: "a number or a text",
    list: "a list",
    str: "a text",
}
_TYPES: dict[FilterOperator, Any] = {
    **dict.fromkeys((FilterOperator.EQ, FilterOperator.NE), _VALUE),
    **dict.fromkeys(
        (FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL), list
    ),
    **dict.fromkeys((FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE), str),
}
"""Types of the filter's value, by operator; numbers and texts for all others."""


def _predicate(one: MetadataFilter) -> Callable[[Any], bool]:
    """Return the function that tells whether a value matches, by LlamaIndex's own rules."""
    kind = FilterOperator(one.operator)
    types = _TYPES.get(kind, _SCALAR)
    if kind != FilterOperator.IS_EMPTY and not isinstance(one.value, types):
        raise ValueError(
            f"{kind.name}, the filter on {one.key!r}, needs {_NAMES[types]}, got {one.value!r}"
        )
    row: dict[str, Any] = {}
    matches = build_metadata_filter_fn(lambda _: row, MetadataFilters(filters=[one]))

    def predicate(held: Any) -> bool:
        if held is None:  # of which releases of LlamaIndex think differently
            return kind in (FilterOperator.NE, FilterOperator.NIN, FilterOperator.IS_EMPTY)
        row[one.key] = held
        try:
            return bool(matches(""))
        except TypeError as error:
            raise ValueError(
                f"{kind.name}, the filter on {one.key!r}, does not take {held!r}: {error}"
            ) from error

    return predicate
