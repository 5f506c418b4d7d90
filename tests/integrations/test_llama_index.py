"""The LlamaIndex store: its nodes, queries and filters, and LlamaIndex over it; more in :mod:`test_stores`."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from framework_stores import (
    CLASSES,
    EVERYTHING,
    LABELS,
    NEW,
    XQ,
    X,
    metadata_of,
    nearest,
    of_other_class,
)
from hypothesis import given
from hypothesis import strategies as st
from tickets import TEXTS, D, classify, embed

import cfe_faiss as cfe
from cfe_faiss.store import EvidenceStore

pytest.importorskip("llama_index.core", reason='needs pip install "cfe-faiss[llama-index]"')

from fsspec.implementations.memory import MemoryFileSystem
from llama_index.core import (
    Document,
    MockEmbedding,
    StorageContext,
    VectorStoreIndex,
    load_index_from_storage,
)
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import VectorIndexRetriever
from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode
from llama_index.core.vector_stores.utils import build_metadata_filter_fn

from cfe_faiss.integrations.llama_index import EvidenceRetriever, EvidenceVectorStore


class TextEmbedding(BaseEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        return embed([text])[0].tolist()

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def predicted(text: str) -> str:
    return CLASSES[classify([text])[0]]


def ticket(i: int, **metadata: Any) -> TextNode:
    """Return ticket i, of the document "letter-(i // 2)"."""
    return TextNode(
        id_=f"ticket-{i}",
        text=TEXTS[i],
        embedding=X[i].tolist(),
        metadata=metadata_of(i) | metadata,
        excluded_embed_metadata_keys=["label", "place", "parity"],
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"letter-{i // 2}")},
    )


def ids_of(nodes: list[Any]) -> list[str]:
    return [found.node_id for found in nodes]


def filled() -> EvidenceVectorStore:
    store = EvidenceVectorStore(EvidenceStore(D))
    store.add([ticket(i) for i in EVERYTHING])
    return store


def asked(text: str, k: int, **fields: Any) -> VectorStoreQuery:
    return VectorStoreQuery(query_embedding=embed([text])[0].tolist(), similarity_top_k=k, **fields)


def having(key: str, value: Any, operator: FilterOperator = FilterOperator.EQ) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])


# --- adding and reading -----------------------------------------------------------------------------------------------

NODES: list[BaseNode] = [
    ticket(3, nested={"a": [1, 2.5, None, {"b": True}]}, none=None),
    Document(id_="d", text="a document", embedding=[0.5] * D, metadata={"label": "x"}),
    IndexNode(
        id_="i", text="an index", index_id="other", embedding=[0.5] * D, metadata={"label": "x"}
    ),
    ImageNode(
        id_="p", text="a picture", image_url="https://example.org/a.png", embedding=[0.5] * D
    ),
    Node(
        id_="n", text_resource=MediaResource(text="a node", mimetype="text/x"), embedding=[0.5] * D
    ),
    Node(id_="u", image_resource=MediaResource(url="https://e.org/a.png"), embedding=[0.5] * D),
    TextNode(id_="e", text="", embedding=[0.5] * D),
    TextNode(
        id_="t",
        text="äöü €",
        text_template="{content}",
        start_char_idx=3,
        end_char_idx=8,
        embedding=[0.5] * D,
    ),
]


@pytest.mark.parametrize("node", NODES, ids=lambda node: type(node).__name__ + node.node_id)
def test_a_node_comes_back_as_it_was_but_for_its_embedding(node: BaseNode) -> None:
    store = EvidenceVectorStore(EvidenceStore(D))
    assert store.add([node]) == [node.node_id]
    (found,) = store.get_nodes([node.node_id])
    assert type(found) is type(node)
    assert found == node.model_copy(update={"embedding": None})


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (TextNode(id_="b", text="no embedding"), "embedding not set"),
        (TextNode(id_="b", text="", embedding=[1.0] * D, metadata={"_node": 1}), "reserved"),
        (
            TextNode(id_="b", text="", embedding=[1.0] * D, metadata={"label": [1]}),
            "labels must be",
        ),
        (TextNode(id_="a", text="twice", embedding=[1.0] * D), "'a' more than once"),
    ],
)
def test_errors_name_values_that_cannot_be_stored_and_nothing_is_added(
    node: TextNode, message: str
) -> None:
    store = filled()
    with pytest.raises((TypeError, ValueError), match=message):
        store.add([TextNode(id_="a", text="good", embedding=[1.0] * D), node])
    assert store.client.ids == [f"ticket-{i}" for i in range(len(TEXTS))]


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_deleting_by_document_and_by_ids_that_pass_a_filter() -> None:
    store = filled()
    store.delete("letter-1")
    store.delete("letter-unknown")
    store.delete_nodes(["ticket-4", "ticket-5"], having("parity", "odd"))
    store.delete_nodes([])
    for call in (store.delete_nodes, store.get_nodes):
        with pytest.raises(TypeError, match="must be a sequence, got str"):
            call("ticket-4")
    assert ids_of(store.get_nodes()) == [f"ticket-{i}" for i in (0, 1, 4, *range(6, len(TEXTS)))]


NO_FILTERS = MetadataFilters(filters=[])


@pytest.mark.parametrize("filters", [None, NO_FILTERS, MetadataFilters(filters=[NO_FILTERS])])
def test_deleting_everything_needs_clear(filters: MetadataFilters | None) -> None:
    store = filled()
    with pytest.raises(ValueError, match="clear deletes all nodes"):
        store.delete_nodes(filters=filters)
    assert len(store.client) == len(TEXTS)


# --- queries ----------------------------------------------------------------------------------------------------------


def test_a_query_is_restricted_to_nodes_and_documents() -> None:
    store = filled()
    even = having("parity", "even")
    some = [f"ticket-{i}" for i in (1, 2, 3, 8)]
    letters = ["letter-1", "letter-4"]
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"node_ids": some}, [1, 2, 3, 8]),
        ({"node_ids": some, "filters": even}, [2, 8]),
        ({"doc_ids": letters}, [2, 3, 8, 9]),
        ({"doc_ids": letters[:1], "node_ids": some}, [2, 3]),
        ({"doc_ids": [], "node_ids": []}, EVERYTHING),
    ]
    for key in ("doc_id", "ref_doc_id", "document_id"):
        cases.append(({"filters": having(key, "letter-1")}, [2, 3]))
    for fields, places in cases:
        found = store.query(asked(NEW, 9, **fields))
        assert found.ids == nearest(XQ, 9, places) == ids_of(found.nodes)


def test_mmr_by_its_definition() -> None:
    store, xq = filled(), embed([NEW])[0]
    pool = [int(one.removeprefix("ticket-")) for one in nearest(xq, 12, EVERYTHING)]
    chosen = [pool.pop(0)]
    while len(chosen) < 4:
        gain = [0.3 * (X[i] @ xq) - 0.7 * max(X[i] @ X[j] for j in chosen) for i in pool]
        chosen.append(pool.pop(int(np.argmax(gain))))
    mode = VectorStoreQueryMode.MMR
    found = store.query(asked(NEW, 4, mode=mode), mmr_threshold=0.3, mmr_prefetch_factor=3.0)
    assert found.ids == [f"ticket-{i}" for i in chosen] == ids_of(found.nodes)
    assert found.similarities == pytest.approx(X[chosen] @ xq, abs=1e-6)
    same = store.query(asked(NEW, 4, mode=mode, mmr_threshold=0.3), mmr_prefetch_factor=3.0)
    assert same.ids == found.ids
    answer = store.query(asked(NEW, 4, mode=mode), mmr_threshold=1.0).ids
    assert answer == store.query(asked(NEW, 4)).ids
    complaints = having("label", "complaint")
    found = store.query(asked(NEW, 4, mode=mode, filters=complaints))
    assert {one.metadata["label"] for one in found.nodes} == {"complaint"}


@pytest.mark.parametrize(
    ("fields", "arguments", "message"),
    [
        ({"query_embedding": None}, {}, "query_embedding must be given"),
        ({"query_embedding": [1.0]}, {}, "xq must have shape"),
        ({"mode": VectorStoreQueryMode.HYBRID}, {}, "mode of the query must be DEFAULT or MMR"),
        ({"alpha": 0.5}, {}, "alpha of the query is not used"),
        ({"mmr_threshold": 0.5}, {}, "mmr_threshold is for the mode MMR only"),
        ({}, {"mmr_threshold": 0.5}, "query takes no mmr_threshold"),
        ({"mode": VectorStoreQueryMode.MMR}, {"mmr_threshold": 1.5}, "lambda_mult"),
        ({"mode": VectorStoreQueryMode.MMR}, {"mmr_prefetch_factor": 0.5}, "mmr_prefetch_factor"),
        ({"mode": VectorStoreQueryMode.MMR}, {"fetch": 3}, "query takes no fetch"),
    ],
)
def test_queries_that_cannot_be_answered(
    fields: dict[str, Any], arguments: dict[str, Any], message: str
) -> None:
    query = asked(NEW, 3)
    for name, value in fields.items():
        setattr(query, name, value)
    with pytest.raises((TypeError, ValueError), match=message):
        filled().query(query, **arguments)


# --- filters ----------------------------------------------------------------------------------------------------------

HELD = st.dictionaries(
    st.sampled_from("abc"),
    st.none() | st.integers(-2, 2) | st.sampled_from([0.5, 1.0, "", "x", "Xy", "y"]),
    max_size=3,
)
SCALARS = st.integers(-2, 2) | st.sampled_from([0.5, 1.0, "x", "xy", "Y"])


@st.composite
def single_filters(draw: st.DrawFn) -> MetadataFilter:
    operator = draw(st.sampled_from(list(FilterOperator)))
    match operator:
        case FilterOperator.IN | FilterOperator.NIN | FilterOperator.ANY | FilterOperator.ALL:
            kind = draw(st.sampled_from([st.integers(-2, 2), st.sampled_from(["x", "Xy"])]))
            value: Any = draw(st.lists(kind, max_size=3))
        case FilterOperator.TEXT_MATCH | FilterOperator.TEXT_MATCH_INSENSITIVE:
            value = draw(st.sampled_from(["", "x", "XY"]))
        case FilterOperator.IS_EMPTY:
            value = None
        case _:
            value = draw(SCALARS)
    return MetadataFilter(key=draw(st.sampled_from("abc")), value=value, operator=operator)


@given(
    st.lists(HELD, min_size=1, max_size=6),
    st.lists(single_filters(), max_size=3),
    st.sampled_from([None, *FilterCondition]),
)
def test_filters_have_the_meaning_of_llama_index(
    held: list[dict[str, Any]], parts: list[MetadataFilter], condition: FilterCondition | None
) -> None:
    filters = MetadataFilters(filters=parts, condition=condition)
    store = EvidenceVectorStore(EvidenceStore(2))
    rows = enumerate(held)
    store.add([TextNode(id_=str(i), text="t", embedding=[1, i], metadata=one) for i, one in rows])
    matches = build_metadata_filter_fn(lambda id_: held[int(id_)], filters)
    try:
        expected = [str(i) for i in range(len(held)) if matches(str(i))]
    except TypeError:  # a comparison of texts with numbers
        with pytest.raises(ValueError, match="does not take"):
            store.get_nodes(filters=filters)
        return
    assert ids_of(store.get_nodes(filters=filters)) == expected


@pytest.mark.parametrize(
    ("operator", "value", "expected"),
    [
        (FilterOperator.CONTAINS, "red", [0, 2]),
        (FilterOperator.ANY, ["blue", "green"], [1, 2]),
        (FilterOperator.ALL, ["red", "blue"], [2]),
        (FilterOperator.ALL, [], [0, 1, 2, 3]),
        (FilterOperator.ANY, [], []),
        (FilterOperator.EQ, ["red"], [0]),
        (FilterOperator.NE, ["red"], [1, 2, 3, 4]),
        (FilterOperator.IS_EMPTY, None, [3, 4]),
    ],
)
def test_filters_on_lists(operator: FilterOperator, value: Any, expected: list[int]) -> None:
    store = EvidenceVectorStore(EvidenceStore(2))
    colours: list[Any] = [["red"], ["blue"], ["red", "blue"], []]
    nodes = [
        TextNode(id_=str(i), embedding=[1, 1], metadata={"tags": tags})
        for i, tags in enumerate(colours)
    ]
    store.add([*nodes, TextNode(id_="4", embedding=[1, 1])])
    wanted = [str(i) for i in expected]
    assert ids_of(store.get_nodes(filters=having("tags", value, operator))) == wanted


def test_nested_filters_and_the_class() -> None:
    store = filled()
    low = having("place", 4, FilterOperator.LT)
    odd_or_low = MetadataFilters(
        filters=[having("parity", "odd"), low], condition=FilterCondition.OR
    )
    neither = MetadataFilters(filters=[odd_or_low], condition=FilterCondition.NOT)
    complaint = MetadataFilter(key="label", value="complaint")
    both = MetadataFilters(
        filters=[complaint, MetadataFilters(filters=[neither, MetadataFilters(filters=[])])]
    )
    expected = [f"ticket-{i}" for i in range(4, len(TEXTS), 2) if LABELS[i] == "complaint"]
    assert expected
    assert ids_of(store.get_nodes(filters=both)) == expected


def test_nested_filters_have_a_limit() -> None:
    store, filters = filled(), having("label", "complaint")
    expected = ids_of(store.get_nodes(filters=filters))
    for _ in range(16):
        filters = MetadataFilters(filters=[filters])
    assert ids_of(store.get_nodes(filters=filters)) == expected
    with pytest.raises(ValueError, match="filters must be nested 16 deep at most"):
        store.get_nodes(filters=MetadataFilters(filters=[filters]))


def test_booleans_are_asked_for_by_numbers() -> None:
    store = EvidenceVectorStore(EvidenceStore(2))
    store.add(
        [TextNode(id_=str(i), embedding=[1, 1], metadata={"paid": bool(i)}) for i in range(2)]
    )
    assert ids_of(store.get_nodes(filters=having("paid", 1))) == ["1"]


@pytest.mark.parametrize(
    ("value", "operator", "message"),
    [
        (3, FilterOperator.IN, "IN, the filter on 'place', needs a list, got 3"),
        ([3], FilterOperator.GT, "GT, the filter on 'place', needs a number or a text"),
        (None, FilterOperator.EQ, "EQ, the filter on 'place', needs a value, got None"),
        (3, FilterOperator.TEXT_MATCH, "TEXT_MATCH, the filter on 'place', needs a text"),
        ("3", FilterOperator.GT, "GT, the filter on 'place', does not take 0"),
        ("3", FilterOperator.TEXT_MATCH, "TEXT_MATCH, the filter on 'place', does not take 0"),
    ],
)
def test_filters_of_a_wrong_type(value: Any, operator: FilterOperator, message: str) -> None:
    store, filters = filled(), having("place", value, operator)
    for ask in (
        lambda: store.get_nodes(filters=filters),
        lambda: store.query(asked(NEW, 3, filters=filters)),
        lambda: store.evidence("ticket-0", filters=filters),
        lambda: store.delete_nodes(filters=filters),
    ):
        with pytest.raises(ValueError, match=message):
            ask()
    assert len(store.client) == len(TEXTS)


# --- evidence ---------------------------------------------------------------------------------------------------------


def test_a_node_is_never_evidence_for_itself() -> None:
    store = filled()
    other = "request" if LABELS[0] == "complaint" else "complaint"
    expected = nearest(X[0], 3, [i for i in of_other_class(other) if i != 0])
    assert ids_of(store.evidence("ticket-0", k=3, label=other)) == expected
    assert ids_of(store.evidence(ticket(0, label=other), k=3)) == expected


# --- LlamaIndex over it -----------------------------------------------------------------------------------------------


def documents() -> list[Document]:
    return [
        Document(
            id_=f"letter-{i}",
            text=text,
            metadata={"label": LABELS[i]},
            excluded_embed_metadata_keys=["label"],
        )
        for i, text in enumerate(TEXTS)
    ]


def texts_of(found: list[Any]) -> list[str]:
    return [one.node.get_content() for one in found]


def test_an_index_its_retriever_and_a_query_engine() -> None:
    store = EvidenceVectorStore(EvidenceStore(D))
    storage = StorageContext.from_defaults(vector_store=store)
    index = VectorStoreIndex.from_documents(
        documents(), storage_context=storage, embed_model=TextEmbedding()
    )
    assert storage.docstore.docs == {}
    xq = embed([NEW])[0]
    expected = [TEXTS[int(one[7:])] for one in nearest(xq, 3, EVERYTHING)]
    assert texts_of(index.as_retriever(similarity_top_k=3).retrieve(NEW)) == expected
    requests = VectorIndexRetriever(index, similarity_top_k=3, filters=having("label", "request"))
    expected = [TEXTS[int(one[7:])] for one in nearest(xq, 3, of_other_class("complaint"))]
    assert texts_of(requests.retrieve(NEW)) == expected
    assert texts_of(asyncio.run(requests.aretrieve(NEW))) == expected
    mmr = index.as_retriever(
        vector_store_query_mode="mmr", vector_store_kwargs={"mmr_threshold": 0.3}
    )
    assert len(mmr.retrieve(NEW)) == 2

    index.delete_ref_doc("letter-3")
    asyncio.run(
        index.ainsert(Document(id_="letter-new", text=NEW, metadata={"label": "complaint"}))
    )
    again = VectorStoreIndex.from_vector_store(store, embed_model=TextEmbedding())
    found = again.as_retriever(similarity_top_k=99).retrieve(NEW)
    assert sorted(texts_of(found)) == sorted([NEW, *TEXTS[:3], *TEXTS[4:]])
    assert found[0].node.ref_doc_id == "letter-new"

    engine = RetrieverQueryEngine.from_args(
        EvidenceRetriever(store, predicted, TextEmbedding()), llm=MockLLM()
    )
    answer = engine.query(NEW)
    others = [i for i in of_other_class(predicted(NEW)) if i != 3]
    expected = [TEXTS[int(id_[7:])] for id_ in nearest(xq, 2, others)]
    assert texts_of(answer.source_nodes) == expected
    # MockLLM says what it was told
    assert all(text in str(answer) for text in texts_of(answer.source_nodes))


def test_the_evidence_retriever() -> None:
    store, xq = filled(), embed([NEW])[0]
    odd = having("parity", "odd")
    retriever = EvidenceRetriever(
        store, predicted, TextEmbedding(), similarity_top_k=3, filters=odd
    )
    expected = nearest(xq, 3, [i for i in of_other_class(predicted(NEW)) if i % 2])
    assert ids_of(retriever.retrieve(NEW)) == expected
    assert ids_of(asyncio.run(retriever.aretrieve(NEW))) == expected
    assert len(EvidenceRetriever(store, predicted, MockEmbedding(D)).retrieve(NEW)) == 2


def test_a_classifier_may_return_integers_of_numpy() -> None:
    store = EvidenceVectorStore(EvidenceStore(D), label_key="class")
    classes = classify(TEXTS)
    for i, row in enumerate(X.tolist()):
        store.add([TextNode(id_=str(i), embedding=row, metadata={"class": classes[i]})])
    retriever = EvidenceRetriever(
        store, lambda text: classify([text])[0], TextEmbedding(), similarity_top_k=3
    )
    found = retriever.retrieve(NEW)
    assert {one.node.metadata["class"] for one in found} == {1 - int(classify([NEW])[0])}


def test_arguments_of_a_wrong_kind() -> None:
    with pytest.raises(TypeError, match=r"store .*got IndexEvidenceIDMap2"):
        EvidenceVectorStore(cfe.IndexEvidenceIDMap2(D))
    with pytest.raises(TypeError, match=r"vector_store .*got EvidenceStore"):
        EvidenceRetriever(EvidenceStore(D), predicted, TextEmbedding())
    with pytest.raises(ValueError, match="similarity_top_k"):
        EvidenceRetriever(filled(), predicted, TextEmbedding(), similarity_top_k=0)
    for name in ("add", "delete", "delete_nodes"):
        argument: Any = [ticket(0)] if name == "add" else "x"
        with pytest.raises(TypeError, match=f"{name} takes no refresh"):
            getattr(filled(), name)(argument, refresh=True)


# --- on disk ----------------------------------------------------------------------------------------------------------


def test_an_index_is_persisted_and_loaded(tmp_path: Path) -> None:
    storage = StorageContext.from_defaults(vector_store=EvidenceVectorStore(EvidenceStore(D)))
    index = VectorStoreIndex.from_documents(
        documents(), storage_context=storage, embed_model=TextEmbedding()
    )
    storage.persist(str(tmp_path))
    loaded = EvidenceVectorStore.from_persist_dir(str(tmp_path))
    context = StorageContext.from_defaults(vector_store=loaded, persist_dir=str(tmp_path))
    again = load_index_from_storage(context, embed_model=TextEmbedding())
    for k in (1, 5):
        expected = index.as_retriever(similarity_top_k=k).retrieve(NEW)
        assert again.as_retriever(similarity_top_k=k).retrieve(NEW) == expected
    first = loaded.get_nodes()[0]
    assert loaded.evidence(first) == index.vector_store.evidence(first)
    # LlamaIndex loads vectors of its own stores only
    rest = StorageContext.from_defaults(persist_dir=str(tmp_path))
    rest.add_vector_store(loaded, "default")
    again = load_index_from_storage(rest, embed_model=TextEmbedding())
    assert again.as_retriever().retrieve(NEW) == index.as_retriever().retrieve(NEW)
    storage.persist(str(tmp_path))
    # as in earlier versions
    (tmp_path / "default__vector_store").rename(tmp_path / "default__vector_store.json")
    assert EvidenceVectorStore.from_persist_dir(str(tmp_path)).get_nodes() == loaded.get_nodes()


def test_only_local_files_are_written_and_loaded(tmp_path: Path) -> None:
    store = EvidenceVectorStore(EvidenceStore(D))
    with pytest.raises(FileNotFoundError):
        EvidenceVectorStore.from_persist_path(str(tmp_path / "none"))
    for refused in (store.persist, EvidenceVectorStore.from_persist_path):
        with pytest.raises(ValueError, match="local file system, got MemoryFileSystem"):
            refused(str(tmp_path / "store"), MemoryFileSystem())


# --- asynchronously ---------------------------------------------------------------------------------------------------


def test_everything_asynchronously() -> None:
    async def run() -> None:
        store = EvidenceVectorStore(EvidenceStore(D))
        expected = filled()
        assert await store.async_add([ticket(i) for i in range(len(TEXTS))]) == expected.client.ids
        query = asked(NEW, 3, mode=VectorStoreQueryMode.MMR)
        found = await store.aquery(query, mmr_threshold=0.2)
        assert found == expected.query(query, mmr_threshold=0.2)
        assert await store.aevidence("ticket-1", k=2) == expected.evidence("ticket-1", k=2)
        assert await store.aget_nodes(["ticket-2"]) == expected.get_nodes(["ticket-2"])
        await store.adelete("letter-0")
        await store.adelete_nodes(filters=having("parity", "odd"))
        assert ids_of(await store.aget_nodes())[:2] == ["ticket-2", "ticket-4"]
        await store.aclear()
        assert await store.aget_nodes() == []

    asyncio.run(run())
