"""The LlamaIndex store, by itself and under LlamaIndex's own index, retrievers and query engines."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
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

NAMES = ["routine", "complaint"]
LABELS = [NAMES[label] for label in classify(TEXTS)]
X = embed(TEXTS)
NEW = "The blue lamp arrived broken and nobody answers"


class TextEmbedding(BaseEmbedding):
    def _get_text_embedding(self, text: str) -> list[float]:
        return embed([text])[0].tolist()

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def predicted(text: str) -> str:
    return NAMES[classify([text])[0]]


def ticket(i: int, **metadata: Any) -> TextNode:
    """Return ticket i, of the document "letter-(i // 2)"."""
    return TextNode(
        id_=f"ticket-{i}",
        text=TEXTS[i],
        embedding=X[i].tolist(),
        metadata={"label": LABELS[i], "place": i, "parity": ["even", "odd"][i % 2], **metadata},
        excluded_embed_metadata_keys=["label", "place", "parity"],
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"letter-{i // 2}")},
    )


def filled(index: str | None = None, n: int = len(TEXTS)) -> EvidenceVectorStore:
    store = EvidenceVectorStore(EvidenceStore(D, index))
    store.add([ticket(i) for i in range(n)])
    return store


def nearest(xq: NDArray[np.float32], k: int, among: list[int]) -> list[str]:
    order = sorted(among, key=lambda i: (-float(np.float32(X[i] @ xq)), i))
    return [f"ticket-{i}" for i in order[:k]]


def others(label: str) -> list[int]:
    return [i for i, other in enumerate(LABELS) if other != label]


def asked(text: str, k: int, **fields: Any) -> VectorStoreQuery:
    return VectorStoreQuery(query_embedding=embed([text])[0].tolist(), similarity_top_k=k, **fields)


def having(key: str, value: Any, operator: FilterOperator = FilterOperator.EQ) -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])


def ids_of(nodes: list[Any]) -> list[str]:
    return [found.node_id for found in nodes]


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
    Node(
        id_="u", image_resource=MediaResource(url="https://example.org/a.png"), embedding=[0.5] * D
    ),
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


def test_text_and_classes_stand_in_the_store_below() -> None:
    rows = filled().client.get()
    assert rows.documents == TEXTS
    assert rows.labels == LABELS
    assert rows.metadata[3]["parity"] == "odd"
    assert "label" not in rows.metadata[3]


def test_adding_a_node_again_replaces_it() -> None:
    store = filled()
    store.add([TextNode(id_="ticket-3", text="new", embedding=[1.0] * D)])
    assert len(store.client) == len(TEXTS)
    (found,) = store.get_nodes(["ticket-3"])
    assert (found.get_content(), found.metadata, found.ref_doc_id) == ("new", {}, None)


def test_a_plain_row_of_the_store_below_is_a_text_node() -> None:
    below = EvidenceStore(D)
    below.add(["a"], X[:1], labels=["urgent"], metadata=[{"lang": "en"}], documents=["a text"])
    (found,) = EvidenceVectorStore(below).get_nodes(["a"])
    assert found == TextNode(id_="a", text="a text", metadata={"lang": "en", "label": "urgent"})


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (TextNode(id_="b", text="no embedding"), "embedding not set"),
        (TextNode(id_="b", text="short", embedding=[1.0]), "embedding .*got 1"),
        (
            TextNode(id_="b", text="a set", embedding=[1.0] * D, metadata={"tags": {1}}),
            "'b': 'tags' must be",
        ),
        (
            TextNode(id_="b", text="reserved", embedding=[1.0] * D, metadata={"_node": 1}),
            "'_node', which is reserved",
        ),
        (
            TextNode(id_="b", text="class", embedding=[1.0] * D, metadata={"label": [1]}),
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


def test_nothing_is_added_where_there_is_nothing() -> None:
    assert filled().add([]) == []


# --- deleting ---------------------------------------------------------------------------------------------------------


def test_deleting_by_document_by_id_by_filter_and_all() -> None:
    store = filled()
    store.delete("letter-1")
    assert ids_of(store.get_nodes())[:3] == ["ticket-0", "ticket-1", "ticket-4"]
    store.delete("letter-unknown")
    store.delete_nodes(["ticket-0", "unknown"])
    store.delete_nodes(filters=having("place", 10, FilterOperator.GTE))
    assert ids_of(store.get_nodes()) == [f"ticket-{i}" for i in (1, 4, 5, 6, 7, 8, 9)]
    store.delete_nodes(["ticket-4", "ticket-5"], having("parity", "odd"))
    assert ids_of(store.get_nodes()) == [f"ticket-{i}" for i in (1, 4, 6, 7, 8, 9)]
    store.delete_nodes([])
    assert len(store.client) == 6
    store.clear()
    assert store.get_nodes() == []
    assert store.query(asked(NEW, 3)).ids == []
    store.add([ticket(0)])
    assert store.query(asked(NEW, 3)).ids == ["ticket-0"]


NO_FILTERS = MetadataFilters(filters=[])


@pytest.mark.parametrize("filters", [None, NO_FILTERS, MetadataFilters(filters=[NO_FILTERS])])
def test_deleting_everything_needs_clear(filters: MetadataFilters | None) -> None:
    store = filled()
    with pytest.raises(ValueError, match="clear deletes all nodes"):
        store.delete_nodes(filters=filters)
    assert len(store.client) == len(TEXTS)


# --- queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index", [None, "EvidenceIVF2,Flat"])
def test_a_query_finds_the_most_similar_nodes(index: str | None) -> None:
    below = EvidenceStore(D, index)
    if index:
        below.train(np.tile(X, (6, 1)))
    store = EvidenceVectorStore(below)
    store.add([ticket(i) for i in range(len(TEXTS))])
    if index:
        below.index.nprobe = 2
    xq = embed([NEW])[0]
    everything = list(range(len(TEXTS)))
    found = store.query(asked(NEW, 4))
    assert found.ids == nearest(xq, 4, everything) == ids_of(found.nodes)
    assert found.similarities == pytest.approx(np.sort(X @ xq)[::-1][:4], abs=1e-6)
    assert all(type(one) is float for one in found.similarities)

    even = having("parity", "even")
    assert store.query(asked(NEW, 4, filters=even)).ids == nearest(xq, 4, everything[::2])
    some = [f"ticket-{i}" for i in (1, 2, 3, 8)]
    assert store.query(asked(NEW, 9, node_ids=some)).ids == nearest(xq, 9, [1, 2, 3, 8])
    assert store.query(asked(NEW, 9, node_ids=some, filters=even)).ids == nearest(xq, 9, [2, 8])
    answer = store.query(asked(NEW, 9, doc_ids=["letter-1", "letter-4"])).ids
    assert answer == nearest(xq, 9, [2, 3, 8, 9])
    answer = store.query(asked(NEW, 9, doc_ids=["letter-1"], node_ids=some)).ids
    assert answer == nearest(xq, 9, [2, 3])
    assert store.query(asked(NEW, 9, doc_ids=[], node_ids=[])).ids == nearest(xq, 9, everything)
    for key in ("doc_id", "ref_doc_id", "document_id"):
        answer = store.query(asked(NEW, 9, filters=having(key, "letter-1"))).ids
        assert answer == nearest(xq, 9, [2, 3])


def test_mmr_by_its_definition() -> None:
    store, xq = filled(), embed([NEW])[0]
    pool = [int(one.removeprefix("ticket-")) for one in nearest(xq, 12, list(range(len(TEXTS))))]
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
    store.add(
        [
            TextNode(id_=str(i), text="t", embedding=[1, i], metadata=one)
            for i, one in enumerate(held)
        ]
    )
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
    store = filled()
    filters = MetadataFilters(filters=[MetadataFilter(key="label", value="complaint")])
    expected = ids_of(store.get_nodes(filters=filters))
    for depth in range(1, 40):
        filters = MetadataFilters(filters=[filters])
        if depth <= 16:
            assert ids_of(store.get_nodes(filters=filters)) == expected
        else:
            with pytest.raises(ValueError, match="filters must be nested 16 deep at most"):
                store.get_nodes(filters=filters)


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


@pytest.mark.parametrize("i", range(len(TEXTS)))
def test_evidence_of_a_stored_node(i: int) -> None:
    store = filled()
    found = store.evidence(f"ticket-{i}", k=3)
    assert ids_of(found) == nearest(X[i], 3, others(LABELS[i]))
    expected = pytest.approx([X[int(one.node_id[7:])] @ X[i] for one in found], abs=1e-6)
    assert [one.score for one in found] == expected
    without_embedding = store.get_nodes([f"ticket-{i}"])[0]
    assert ids_of(store.evidence(without_embedding, k=3)) == ids_of(found)
    assert ids_of(store.evidence(ticket(i), k=3)) == ids_of(found)
    odd = [j for j in others(LABELS[i]) if j % 2]
    answer = ids_of(store.evidence(f"ticket-{i}", k=99, filters=having("parity", "odd")))
    assert answer == nearest(X[i], 99, odd)


def test_evidence_of_a_new_node() -> None:
    store, xq = filled(), embed([NEW])[0]
    new = TextNode(text=NEW, embedding=xq.tolist(), metadata={"label": "complaint"})
    assert ids_of(store.evidence(new, k=3)) == nearest(xq, 3, others("complaint"))
    assert ids_of(store.evidence(new, k=3, label="routine")) == nearest(xq, 3, others("routine"))


def test_a_node_is_never_evidence_for_itself() -> None:
    store = filled()
    other = "routine" if LABELS[0] == "complaint" else "complaint"
    expected = nearest(X[0], 3, [i for i in others(other) if i != 0])
    assert ids_of(store.evidence("ticket-0", k=3, label=other)) == expected
    assert ids_of(store.evidence(ticket(0, label=other), k=3)) == expected


def test_new_classes_are_given_to_the_store_below() -> None:
    store = filled()
    store.client.relabel({"ticket-0": None, "ticket-1": "other"})
    found = [node.metadata.get("label") for node in store.get_nodes(["ticket-0", "ticket-1"])]
    assert found == [None, "other"]
    assert "ticket-0" not in ids_of(store.evidence("ticket-1", k=99))
    with pytest.raises(ValueError, match="label must be given"):
        store.evidence("ticket-0")


@pytest.mark.parametrize(
    ("node", "label", "message"),
    [
        ("unknown", None, "'unknown'"),
        (TextNode(id_="unknown", text="no embedding"), None, "'unknown'"),
        (TextNode(text="no class", embedding=[1.0] * D), None, "label must be given"),
        (TextNode(text="class", embedding=[1.0] * D), "urgent", "label must be a known class"),
    ],
)
def test_evidence_that_cannot_be_found(node: Any, label: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        filled().evidence(node, label=label)


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
    expected = [TEXTS[int(one[7:])] for one in nearest(xq, 3, list(range(len(TEXTS))))]
    assert texts_of(index.as_retriever(similarity_top_k=3).retrieve(NEW)) == expected
    routine = VectorIndexRetriever(index, similarity_top_k=3, filters=having("label", "routine"))
    expected = [TEXTS[int(one[7:])] for one in nearest(xq, 3, others("complaint"))]
    assert texts_of(routine.retrieve(NEW)) == expected
    assert texts_of(asyncio.run(routine.aretrieve(NEW))) == expected
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
    assert texts_of(answer.source_nodes) == [
        TEXTS[int(one[7:])] for one in nearest(xq, 2, [i for i in others(predicted(NEW)) if i != 3])
    ]
    # MockLLM says what it was told
    assert all(text in str(answer) for text in texts_of(answer.source_nodes))


def test_the_evidence_retriever() -> None:
    store, xq = filled(), embed([NEW])[0]
    odd = having("parity", "odd")
    retriever = EvidenceRetriever(
        store, predicted, TextEmbedding(), similarity_top_k=3, filters=odd
    )
    expected = nearest(xq, 3, [i for i in others(predicted(NEW)) if i % 2])
    assert ids_of(retriever.retrieve(NEW)) == expected
    assert ids_of(asyncio.run(retriever.aretrieve(NEW))) == expected
    assert len(EvidenceRetriever(store, predicted, MockEmbedding(D)).retrieve(NEW)) == 2


def test_a_classifier_may_return_integers_of_numpy() -> None:
    store = EvidenceVectorStore(EvidenceStore(D), label_key="class")
    classes = classify(TEXTS)
    store.add(
        [
            TextNode(id_=str(i), embedding=X[i].tolist(), metadata={"class": classes[i]})
            for i in range(len(X))
        ]
    )
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


def test_a_store_is_persisted_and_loaded(tmp_path: Path) -> None:
    store = EvidenceVectorStore(EvidenceStore(D), label_key="class")
    store.add([ticket(i, **{"class": LABELS[i]}) for i in range(5)])
    store.persist(str(tmp_path / "store"))
    loaded = EvidenceVectorStore.from_persist_path(str(tmp_path / "store"), label_key="class")
    assert loaded.get_nodes() == store.get_nodes()
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


def test_a_missing_package_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['llama_index'] = None; import cfe_faiss.integrations.llama_index"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.stderr.endswith(
        'ImportError: llama_index is missing: pip install "cfe-faiss[llama-index]"\n'
    )
