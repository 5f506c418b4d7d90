"""The Haystack document store: documents, policies, filters, retrievers, pipelines; more in :mod:`test_stores`."""

import asyncio
import copy
import math
from pathlib import Path
from typing import Any

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

pytest.importorskip("haystack", reason='needs pip install "cfe-faiss[haystack]"')

from haystack import Document, Pipeline, component
from haystack.core.errors import DeserializationError
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy
from haystack.errors import FilterError
from haystack.utils.filters import document_matches_filter

from cfe_faiss.integrations.haystack import (
    EvidenceDocumentStore,
    EvidenceEmbeddingRetriever,
    EvidenceRetriever,
)


def ticket(i: int, **meta: Any) -> Document:
    return Document(
        id=f"ticket-{i}",
        content=TEXTS[i],
        embedding=(X[i] * (i + 1)).tolist(),  # of different lengths
        meta=metadata_of(i) | meta,
    )


def filled(**settings: Any) -> EvidenceDocumentStore:
    """Return a store of all tickets, and of three that have no embedding."""
    store = EvidenceDocumentStore(embedding_dim=D, **settings)
    bare = [
        Document(id=f"bare-{i}", content=NEW, meta={"label": CLASSES[i % 2], "parity": "none"})
        for i in range(3)
    ]
    store.write_documents([bare[0], *(ticket(i) for i in EVERYTHING), *bare[1:]])
    return store


def ids_of(documents: list[Document]) -> list[str]:
    return [one.id for one in documents]


def having(field: str, operator: str, value: Any) -> dict[str, Any]:
    return {"field": field, "operator": operator, "value": value}


ODD = having("meta.parity", "==", "odd")


def nested(depth: int) -> dict[str, Any]:
    filters = ODD
    for _ in range(depth):
        filters = {"operator": "NOT", "conditions": [filters]}
    return filters


# --- writing and reading ----------------------------------------------------------------------------------------------

DOCUMENTS = [
    Document(
        id="all",
        content="text",
        blob=ByteStream(b"\x00\xff", {"name": "a.bin"}, "x/y"),
        score=0.5,
        meta={"a": 1},
    ),
    Document(id="sparse", sparse_embedding=SparseEmbedding([1, 5], [0.5, 2.0])),
    Document(
        id="nested",
        content="",
        meta={"person": {"name": "Ada", "tags": ["x", 1, 2.0, None, True]}, "none": None},
    ),
    Document(id="unit", content="u", embedding=[0.6, 0.0, -0.8]),
    Document(id="long", content="l", embedding=[3.0, 4.0, 12.0], meta={"label": "x"}),
    Document(id="zeros", content="z", embedding=[0.0, 0.0, 0.0], meta={"label": "x"}),
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids_of(DOCUMENTS))
def test_a_document_comes_back_as_it_was(document: Document, tmp_path: Path) -> None:
    store = EvidenceDocumentStore(embedding_dim=3)
    store.write_documents([document])
    store.save_to_disk(str(tmp_path / "store"))
    for one in (store, EvidenceDocumentStore(embedding_dim=3, path=str(tmp_path / "store"))):
        (found,) = one.filter_documents()
        if document.embedding is not None:
            assert found.embedding == pytest.approx(document.embedding, rel=3e-7)
            found = Document.from_dict(
                {**found.to_dict(flatten=False), "embedding": document.embedding}
            )
        assert found == document


def test_skipping_and_overwriting() -> None:
    store = filled()
    first, second = Document(id="new", content="first"), Document(id="new", content="second")
    assert store.write_documents([first, second, ticket(3, extra=1)], DuplicatePolicy.SKIP) == 1
    assert store.filter_documents(having("id", "==", "new")) == [first]
    assert "extra" not in store.filter_documents(having("id", "==", "ticket-3"))[0].meta

    first = Document(id="ticket-3", content="first")
    second = Document(id="ticket-3", content="second")
    assert store.write_documents([first, second], DuplicatePolicy.OVERWRITE) == 2
    assert store.filter_documents(having("id", "==", "ticket-3")) == [second]
    # it has no embedding any more
    assert "ticket-3" not in ids_of(store.embedding_retrieval(XQ.tolist(), top_k=99))
    store.write_documents([ticket(3)], DuplicatePolicy.OVERWRITE)
    assert ids_of(store.embedding_retrieval(X[3].tolist(), top_k=1)) == ["ticket-3"]
    assert store.write_documents([], DuplicatePolicy.OVERWRITE) == 0


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (Document(id="b", meta={"_haystack": {}}), "'_haystack', which is reserved"),
        (Document(id="b", meta={"label": 3}), "labels must be texts, as the labels"),
    ],
)
def test_errors_name_values_that_cannot_be_stored_and_nothing_is_written(
    document: Document, message: str
) -> None:
    for policy in DuplicatePolicy:
        store = filled()
        with pytest.raises((TypeError, ValueError), match=message):
            store.write_documents([Document(id="good"), document], policy)
        assert store.count_documents() == len(TEXTS) + 3


def test_an_update_keeps_embeddings_and_sets_classes() -> None:
    store = filled()
    before = store.embedding_retrieval(XQ.tolist(), ODD, top_k=99, return_embedding=True)
    assert store.update_by_filter(ODD, {"label": "other", "seen": True}) == len(before)
    after = store.embedding_retrieval(XQ.tolist(), ODD, top_k=99, return_embedding=True)
    assert {one.meta["label"] for one in after} == {"other"}
    assert all(one.meta["seen"] for one in after)
    for one, other in zip(before, after, strict=True):
        assert one.id == other.id
        assert one.embedding == pytest.approx(other.embedding, rel=3e-7)


# --- filters ----------------------------------------------------------------------------------------------------------

DATES = ["2020-01-01", "2020-01-01T00:00:00", "2020-01-01T00:00:00+01:00", "May 2020"]
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([0.5, 1.0, "x", "y", "", *DATES])
    | st.lists(st.integers(0, 1), max_size=2)
)
METAS = st.dictionaries(
    st.sampled_from("ab"), VALUES | st.dictionaries(st.just("c"), VALUES, max_size=1), max_size=3
)


@st.composite
def filters_of(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    if depth and draw(st.booleans()):
        parts = draw(st.lists(filters_of(depth - 1), min_size=1, max_size=2))
        return {"operator": draw(st.sampled_from(["AND", "OR", "NOT"])), "conditions": parts}
    field = draw(
        st.sampled_from(["meta.a", "meta.b", "a", "meta.a.c", "meta.b.c", "id", "content"])
    )
    operator = draw(st.sampled_from(["==", "!=", ">", ">=", "<", "<=", "in", "not in"]))
    value = draw(st.lists(VALUES, max_size=3) if operator.endswith("in") else VALUES)
    return having(field, operator, value)


def leaves(filters: dict[str, Any]) -> list[dict[str, Any]]:
    return (
        [filters]
        if "field" in filters
        else [leaf for part in filters["conditions"] for leaf in leaves(part)]
    )


def is_error(leaf: dict[str, Any], document: Document) -> bool:
    try:
        document_matches_filter(leaf, document)
    except (FilterError, TypeError):
        return True
    return False


@given(st.lists(METAS, min_size=1, max_size=5), filters_of())
def test_filters_have_the_meaning_of_haystack(
    metas: list[dict[str, Any]], filters: dict[str, Any]
) -> None:
    documents = [
        Document(id=str(i), content="xyz"[i % 3], meta={**meta, "label": None})
        for i, meta in enumerate(metas)
    ]
    store = EvidenceDocumentStore(embedding_dim=1)
    store.write_documents(documents)
    if any(is_error(leaf, one) for leaf in leaves(filters) for one in documents):
        with pytest.raises(FilterError):
            store.filter_documents(filters)
        return
    try:
        found = ids_of(store.filter_documents(filters))
    except FilterError:  # a value that the operator never takes, which Haystack sees only where there is one to compare
        assert any(leaf["operator"] in (">", ">=", "<", "<=") for leaf in leaves(filters))
        return
    assert found == [one.id for one in documents if document_matches_filter(filters, one)]


@pytest.mark.parametrize(
    ("operator", "value"), [("==", math.nan), ("!=", math.nan), ("in", [math.nan, 1])]
)
def test_nan_equals_nothing_as_in_haystack(operator: str, value: Any) -> None:
    documents = [
        Document(id="a", meta={"v": math.nan}),
        Document(id="b", meta={"v": 1}),
        Document(id="c"),
    ]
    store, filters = EvidenceDocumentStore(embedding_dim=1), having("meta.v", operator, value)
    store.write_documents(documents)
    expected = [one.id for one in documents if document_matches_filter(filters, one)]
    assert ids_of(copy.deepcopy(store).filter_documents(filters)) == expected


COMPLAINTS = ["bare-1", *(f"ticket-{i}" for i in of_other_class("request"))]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (having("id", "in", ["ticket-3", "bare-0", "unknown"]), ["bare-0", "ticket-3"]),
        (having("content", "==", TEXTS[5]), ["ticket-5"]),
        (having("embedding", "==", None), ["bare-0", "bare-1", "bare-2"]),
        (having("embedding", "!=", None), [f"ticket-{i}" for i in EVERYTHING]),
        (having("blob", "!=", None), []),
        (having("score", ">", 0.5), []),
        (having("meta.label", "==", "complaint"), COMPLAINTS),
        (having("label", "not in", ["request"]), COMPLAINTS),
        (having("meta.place", "<=", 1), ["ticket-0", "ticket-1"]),
        (having("meta.unknown", "!=", None), []),
    ],
    ids=lambda one: one.get("field") if isinstance(one, dict) else "",
)
def test_filters_on_every_field(filters: dict[str, Any], expected: list[str]) -> None:
    store = filled()
    assert sorted(ids_of(store.filter_documents(filters))) == sorted(expected)
    assert store.count_documents_by_filter(filters) == len(expected)


def test_filters_where_haystack_compares_dates() -> None:
    store = EvidenceDocumentStore(embedding_dim=1)
    dates = ["2020-01-01T12:00:00+00:00", "2020-01-01T13:30:00+02:00", "2020-01-02", None]
    store.write_documents(
        [Document(id=str(i), meta={"date": date}) for i, date in enumerate(dates)]
    )
    assert ids_of(store.filter_documents(having("meta.date", "<", "2020-01-01T12:00:00Z"))) == ["1"]
    found = ids_of(store.filter_documents(having("meta.date", "==", "2020-01-01T13:00:00+01:00")))
    assert found == ["0"]
    found = ids_of(store.filter_documents(having("meta.date", "in", ["2020-01-02T00:00:00"])))
    assert found == ["2"]


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        (having("meta.place", "~", 1), "unknown comparison operator '~'"),
        (having("meta.place", ">", [1]), "list"),
        (having("meta.place", ">", {"a": 1}), "> of 'meta.place' cannot compare"),
        (having("meta.place", "in", 1), "list"),
        (having("meta.place", "in", (1, 2)), "list"),
        (having("meta.place", ">", "x"), "ISO"),
        (having("meta.parity", "<", 3), "ISO"),
        (having("embedding", "==", [1.0]), "embedding can be compared with None only"),
        (having("embedding", ">", None), "embedding can be compared with None only"),
        (having("meta.$id", "==", 1), r"field 'meta.\$id' cannot be compared"),
        (having(3, "==", 1), "field must be a text, got 3"),
        ({"operator": "XOR", "conditions": [ODD]}, "unknown logical operator 'XOR'"),
        ({"operator": "AND", "conditions": []}, "conditions of AND must be"),
        ({"operator": "AND", "conditions": ["x"]}, "a filter must be a dictionary, got 'x'"),
        ("x", "a filter must be a dictionary, got 'x'"),
        (nested(100), "filters must be nested 16 deep at most"),
        (nested(100_000), "filters must be nested 16 deep at most"),
    ],
)
def test_filters_that_are_wrong(filters: Any, message: str) -> None:
    store = filled()
    for ask in (
        store.filter_documents,
        store.count_documents_by_filter,
        store.delete_by_filter,
        lambda filters: store.update_by_filter(filters, {"a": 1}),
        lambda filters: store.embedding_retrieval(XQ.tolist(), filters),
        lambda filters: store.evidence("ticket-0", filters=filters),
    ):
        with pytest.raises(FilterError, match=message):
            ask(filters)
    assert store.count_documents() == len(TEXTS) + 3


def test_filters_nested_to_the_limit() -> None:
    store = filled()
    assert store.count_documents_by_filter(nested(16)) == store.count_documents_by_filter(ODD) > 0


def test_an_empty_folder_is_a_store_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    for path in (tmp_path / "new", tmp_path / "missing"):
        store = EvidenceDocumentStore(embedding_dim=3, path=str(path))
        store.write_documents([Document(id="a", embedding=[1.0, 0.0, 0.0], meta={"label": True})])
        store.save_to_disk()
        reopened = EvidenceDocumentStore(embedding_dim=3, path=str(path))
        found = reopened.filter_documents(having("meta.label", "==", True))
        assert [document.meta for document in found] == [{"label": True}]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not the directory of a store"):
        EvidenceDocumentStore(embedding_dim=3, path=str(tmp_path / "other"))


# --- searching --------------------------------------------------------------------------------------------------------


def test_embeddings_of_any_length_are_compared_by_direction() -> None:
    store = filled()
    expected = nearest(XQ, 4)
    assert ids_of(store.embedding_retrieval((XQ * 7).tolist(), top_k=4)) == expected
    assert store.embedding_retrieval(XQ.tolist(), top_k=0) == []
    assert store.embedding_retrieval(XQ.tolist(), top_k=1)[0].embedding is None
    (first,) = store.embedding_retrieval(XQ.tolist(), top_k=1, return_embedding=True)
    place = int(first.id[7:])
    assert first.embedding == pytest.approx((X[place] * (place + 1)).tolist(), rel=3e-7)


def test_a_document_is_never_evidence_for_itself() -> None:
    store = filled()
    other = "request" if LABELS[0] == "complaint" else "complaint"
    expected = nearest(X[0], 3, [i for i in of_other_class(other) if i != 0])
    assert ids_of(store.evidence("ticket-0", other, top_k=3)) == expected
    assert ids_of(store.evidence(ticket(0, label=other), top_k=3)) == expected


@pytest.mark.parametrize(
    ("query", "label", "message"),
    [
        ("unknown", None, "'unknown'"),
        ("bare-0", None, "document 'bare-0' must have an embedding"),
        (Document(id="bare-0"), None, "document 'bare-0' must have an embedding"),
        (Document(content="no class", embedding=[1.0] * D), None, "label must be given"),
        ([1.0] * D, None, "label must be given"),
        ([1.0] * D, "urgent", "label must be a known class .*'urgent'"),
        ([1.0], "request", "shape"),
    ],
)
def test_evidence_that_cannot_be_found(query: Any, label: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        filled().evidence(query, label)


# --- components and pipelines -----------------------------------------------------------------------------------------


@component
class TextEmbedder:
    """A deterministic embedder."""

    @component.output_types(embedding=list[float])
    def run(self, text: str) -> dict[str, Any]:
        return {"embedding": embed([text])[0].tolist()}


@component
class Classifier:
    """The classifier whose predictions the documents have."""

    @component.output_types(label=str)
    def run(self, text: str) -> dict[str, Any]:
        return {"label": CLASSES[classify([text])[0]]}


def pipeline_over(store: EvidenceDocumentStore) -> Pipeline:
    pipeline = Pipeline()
    pipeline.add_component("embedder", TextEmbedder())
    pipeline.add_component("classifier", Classifier())
    pipeline.add_component("similar", EvidenceEmbeddingRetriever(store, top_k=3))
    pipeline.add_component("evidence", EvidenceRetriever(store, filters=ODD, top_k=3))
    pipeline.connect("embedder.embedding", "similar.query_embedding")
    pipeline.connect("embedder.embedding", "evidence.query_embedding")
    pipeline.connect("classifier.label", "evidence.label")
    return pipeline


def check_answers(answers: dict[str, Any]) -> None:
    label = CLASSES[classify([NEW])[0]]
    assert ids_of(answers["similar"]["documents"]) == nearest(XQ, 3, EVERYTHING)
    found = ids_of(answers["evidence"]["documents"])
    assert found == nearest(XQ, 3, [i for i in of_other_class(label) if i % 2])


ASKED = {"embedder": {"text": NEW}, "classifier": {"text": NEW}}


def test_a_pipeline() -> None:
    pipeline = pipeline_over(filled())
    check_answers(pipeline.run(ASKED))
    check_answers(asyncio.run(pipeline.run_async(ASKED)))
    even = having("meta.parity", "==", "even")
    answers = pipeline.run({**ASKED, "evidence": {"filters": even, "top_k": 1}})
    label = CLASSES[classify([NEW])[0]]
    found = ids_of(answers["evidence"]["documents"])
    assert found == nearest(XQ, 1, [i for i in of_other_class(label) if i % 2 == 0])


def test_a_pipeline_from_yaml_finds_its_documents(tmp_path: Path) -> None:
    store = filled(path=str(tmp_path / "store"))
    store.save_to_disk()
    text = pipeline_over(store).dumps()
    with pytest.raises(DeserializationError, match="cfe_faiss"):
        Pipeline.loads(text, allowed_modules=[__name__])
    pipeline = Pipeline.loads(text, allowed_modules=["cfe_faiss", __name__])
    check_answers(pipeline.run(ASKED))
    assert sorted(pipeline.dumps().splitlines()) == sorted(text.splitlines())


@pytest.mark.parametrize("kind", [EvidenceEmbeddingRetriever, EvidenceRetriever])
def test_components_from_their_settings(kind: Any) -> None:
    store = EvidenceDocumentStore(embedding_dim=3, label_key="class", index="EvidenceIVF2,Flat")
    settings = kind(
        store, ODD, 3, return_embedding=True, filter_policy=FilterPolicy.MERGE
    ).to_dict()
    found = kind.from_dict(settings)
    assert found.to_dict() == settings
    expected = (3, ODD, True, FilterPolicy.MERGE)
    assert (found.top_k, found.filters, found.return_embedding, found.filter_policy) == expected
    assert found.document_store.to_dict() == store.to_dict()
    assert (found.document_store.embedding_dim, found.document_store.label_key) == (3, "class")
    assert found.document_store.store.index.nlist == 2


def test_filters_of_a_run_replace_or_join() -> None:
    store = filled()
    low = having("meta.place", "<", 6)
    replaced = EvidenceEmbeddingRetriever(store, ODD, 99).run(XQ.tolist(), low)["documents"]
    assert ids_of(replaced) == nearest(XQ, 99, EVERYTHING[:6])
    joined = EvidenceEmbeddingRetriever(store, ODD, 99, filter_policy=FilterPolicy.MERGE).run(
        XQ.tolist(), low
    )
    assert ids_of(joined["documents"]) == nearest(XQ, 99, [1, 3, 5])
    assert EvidenceEmbeddingRetriever(store).run(XQ.tolist(), top_k=0) == {"documents": []}
    found = EvidenceRetriever(store, return_embedding=True).run(document_id="ticket-0", top_k=1)[
        "documents"
    ]
    assert found[0].embedding is not None


def test_arguments_of_a_wrong_kind(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"document_store .*got InMemoryDocumentStore"):
        EvidenceRetriever(InMemoryDocumentStore())
    store = filled()
    with pytest.raises(ValueError, match="top_k"):
        EvidenceEmbeddingRetriever(store, top_k=0)
    retriever = EvidenceRetriever(store)
    for query in ({}, {"query_embedding": [1.0] * D, "document_id": "ticket-0"}):
        with pytest.raises(ValueError, match="give either query_embedding and label"):
            retriever.run(**query)
    with pytest.raises(ValueError, match="top_k must be >= 0, got -1"):
        retriever.run(document_id="ticket-0", top_k=-1)
    with pytest.raises(ValueError, match="'replace' is not a valid DuplicatePolicy"):
        store.write_documents([ticket(0)], "replace")
    with pytest.raises(ValueError, match="path must be given"):
        store.save_to_disk()
    store.save_to_disk(str(tmp_path / "store"))
    with pytest.raises(ValueError, match=r"embedding_dim must be 128, as in .*, got 3"):
        EvidenceDocumentStore(embedding_dim=3, path=str(tmp_path / "store"))
