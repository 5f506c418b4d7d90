"""The LangChain store: LangChain's own tests, its searches, retrievers and indexing; more in :mod:`test_stores`."""

import asyncio
import copy
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from framework_stores import (
    CLASSES,
    EVERYTHING,
    IDS,
    LABELS,
    NEW,
    XQ,
    LangChain,
    X,
    metadata_of,
    nearest,
    of_other_class,
)
from hypothesis import given
from hypothesis import strategies as st
from tickets import TEXTS, D, classify, embed

import cfe_faiss as cfe

pytest.importorskip("langchain_tests", reason='needs pip install "cfe-faiss[test-integrations]"')
pytest.importorskip("pyarrow", reason='needs pip install "cfe-faiss[test-integrations]"')

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import InMemoryRecordManager, index
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from langchain_tests.integration_tests import VectorStoreIntegrationTests

from cfe_faiss.integrations.langchain import EvidenceRetriever, EvidenceVectorStore

EMBEDDINGS = LangChain().embeddings
METADATAS = [metadata_of(i) for i in EVERYTHING]


class AsyncOnly(Embeddings):
    """An embedding that is waited for, and must not be called otherwise."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise AssertionError("called in place of aembed_documents")

    def embed_query(self, text: str) -> list[float]:
        raise AssertionError("called in place of aembed_query")

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return embed(texts).tolist()

    async def aembed_query(self, text: str) -> list[float]:
        return embed([text])[0].tolist()


class Circle(Embeddings):
    """Texts are angles in degrees."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [math.cos(math.radians(float(text))), math.sin(math.radians(float(text)))]


def filled(embedding: Embeddings | None = None) -> EvidenceVectorStore:
    return EvidenceVectorStore.from_texts(TEXTS, embedding or EMBEDDINGS, METADATAS, ids=IDS)


def ids_of(documents: list[Any]) -> list[str]:
    return [document.id for document in documents]


class TestStandard(VectorStoreIntegrationTests):
    """LangChain's own tests, sync and async."""

    @pytest.fixture
    def vectorstore(self) -> EvidenceVectorStore:
        return EvidenceVectorStore(self.get_embeddings())


# --- searches and evidence ------------------------------------------------------------------------------------------


def searches(vs: EvidenceVectorStore, wanted: Any) -> list[list[Any]]:
    """Return what each way of a search finds for the new text under a filter."""
    vector = embed([NEW])[0].tolist()
    options: dict[str, Any] = {"k": 5, "filter": wanted}
    scored = [
        vs.similarity_search_with_score(NEW, **options),
        vs.similarity_search_with_relevance_scores(NEW, **options),
    ]
    return [
        vs.similarity_search(NEW, **options),
        *([document for document, _ in found] for found in scored),
        vs.similarity_search_by_vector(vector, **options),
        vs.as_retriever(search_kwargs=options).invoke(NEW),
        vs.max_marginal_relevance_search(NEW, lambda_mult=1.0, **options),
    ]


def evidence(vs: EvidenceVectorStore, wanted: Any) -> list[list[Any]]:
    """Return what each way of an evidence search finds for the first ticket."""
    (document,) = vs.get_by_ids(IDS[:1])
    options: dict[str, Any] = {"k": 3, "filter": wanted}
    return [
        vs.evidence_search(IDS[0], **options),
        vs.evidence_search(document, **options),
        [document for document, _ in vs.evidence_search_with_score(IDS[0], **options)],
        vs.evidence_search_by_vector(X[0].tolist(), label=LABELS[0], **options),
    ]


@pytest.mark.parametrize(
    ("wanted", "admits"),
    [
        (None, lambda m: True),
        ({"label": "complaint"}, lambda m: m["label"] == "complaint"),
        ({"label": {"$nin": ["request", "other"]}}, lambda m: m["label"] == "complaint"),
        ({"parity": "even"}, lambda m: m["place"] % 2 == 0),
        (
            {"$or": [{"place": {"$in": [0, 1]}}, {"label": {"$ne": "complaint"}}]},
            lambda m: m["place"] < 2 or m["label"] != "complaint",
        ),
        (lambda document: "lamp" in document.page_content, lambda m: "lamp" in TEXTS[m["place"]]),
        ({"place": -1}, lambda m: False),
    ],
)
def test_every_search_is_exact_under_a_filter(wanted: Any, admits: Any) -> None:
    vs = filled()
    admitted = [i for i in EVERYTHING if admits(METADATAS[i])]
    for found in searches(vs, wanted):
        assert ids_of(found) == nearest(XQ, 5, admitted)
    others = [i for i in admitted if LABELS[i] != LABELS[0]]
    for found in evidence(vs, wanted):
        assert ids_of(found) == nearest(X[0], 3, others)


def test_a_class_that_is_known_before_it_is_stored() -> None:
    store = cfe.EvidenceStore(D, class_names=["praise", *CLASSES])
    vs = EvidenceVectorStore.from_texts(TEXTS, EMBEDDINGS, METADATAS, ids=IDS, store=store)
    assert vs.store is store
    new = Document(page_content=NEW, metadata={"label": "praise"})
    assert ids_of(vs.evidence_search(new, k=4)) == nearest(XQ, 4)


def test_relabelling_is_whole_or_not_at_all() -> None:
    vs = filled()
    vs.relabel({IDS[0]: "praise", IDS[1]: None})
    before = vs.get_by_ids(IDS)
    assert [one.metadata.get("label") for one in before[:2]] == ["praise", None]
    with pytest.raises((KeyError, ValueError), match="nobody"):
        vs.relabel({IDS[2]: "praise", "nobody": "praise"})
    assert vs.get_by_ids(IDS) == before


def test_the_stored_document_counts_rather_than_the_copy() -> None:
    vs = filled()
    (old,) = vs.get_by_ids([IDS[0]])
    vs.relabel({IDS[0]: "request"})
    assert old.metadata["label"] == "complaint"
    found = ids_of(vs.evidence_search(old, k=4))
    assert found == nearest(X[0], 4, of_other_class("request")[1:])


def test_relevance_scores_lie_between_0_and_1() -> None:
    vs = EvidenceVectorStore.from_texts(["0", "30", "90", "180"], Circle())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scored = vs.similarity_search_with_relevance_scores("0", k=4)
    assert [document.page_content for document, _ in scored] == ["0", "30", "90", "180"]
    found = [score for _, score in scored]
    assert found == pytest.approx([1.0, math.cos(math.radians(30)), 0.0, 0.0], abs=1e-6)
    above = vs.similarity_search_with_relevance_scores("0", k=4, score_threshold=0.5)
    assert above == scored[:2]
    assert vs.similarity_search_with_score("0", k=4)[3][1] == pytest.approx(-1.0)


@given(
    angles=st.lists(st.integers(0, 3590), min_size=1, max_size=12, unique=True),
    weight=st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]),
    k=st.integers(1, 14),
)
def test_marginal_relevance_is_that_of_langchain(angles: list[int], weight: float, k: int) -> None:
    # Tenths of a degree, shifted: no two rows are equally far from the query or from one another.
    texts = [str(angle / 10 + 1e-4 * angle * angle % 0.09) for angle in angles]
    vs = EvidenceVectorStore.from_texts(texts, Circle())
    found = vs.max_marginal_relevance_search("0.0123", k=k, fetch_k=8, lambda_mult=weight)
    near = vs.similarity_search("0.0123", k=8)
    vectors = Circle().embed_documents([document.page_content for document in near])
    query = np.array(Circle().embed_query("0.0123"))
    expected = maximal_marginal_relevance(query, vectors, weight, k)
    relevances = [
        _relevances(query, vectors, chosen, weight)
        for chosen in (expected, [near.index(d) for d in found])
    ]
    assert relevances[1] == pytest.approx(relevances[0], abs=1e-6)
    assert len(set(ids_of(found))) == len(found) == min(k, 8, len(texts))


def _relevances(
    query: Any, vectors: list[list[float]], chosen: list[int], weight: float
) -> list[float]:
    X = np.array(vectors)
    redundancy = [
        max((X[i] @ X[j] for j in chosen[:rank]), default=0.0) for rank, i in enumerate(chosen)
    ]
    return [
        weight * float(X[i] @ query) - (1 - weight) * r
        for i, r in zip(chosen, redundancy, strict=True)
    ]


# --- retrievers -------------------------------------------------------------------------------------------------------


def test_retrievers() -> None:
    vs = filled()
    assert ids_of(vs.as_retriever().invoke(NEW)) == nearest(XQ, 4)
    answer = vs.as_retriever(search_type="mmr", search_kwargs={"k": 3}).invoke(NEW)
    assert answer == vs.max_marginal_relevance_search(NEW, k=3)
    threshold = {"k": 14, "score_threshold": 0.5}
    found = vs.as_retriever(
        search_type="similarity_score_threshold", search_kwargs=threshold
    ).invoke(NEW)
    assert ids_of(found) == nearest(XQ, int((embed(TEXTS) @ embed([NEW])[0] >= 0.5).sum()))


def classifier(text: str) -> str:
    return CLASSES[int(classify([text])[0])]


def test_a_retriever_of_evidence() -> None:
    vs = filled()
    retriever = vs.as_retriever(
        search_type="evidence", classifier=classifier, search_kwargs={"k": 3}
    )
    for text in [NEW, *TEXTS]:
        expected = nearest(embed([text])[0], 3, of_other_class(classifier(text)))
        assert ids_of(retriever.invoke(text)) == expected
    found = ids_of(retriever.invoke(NEW, label="request", k=2))
    assert found == nearest(XQ, 2, of_other_class("request"))
    told = vs.as_retriever(search_type="evidence", search_kwargs={"k": 3, "label": "complaint"})
    assert ids_of(told.invoke(NEW)) == nearest(XQ, 3, of_other_class("complaint"))
    assert asyncio.run(told.ainvoke(NEW)) == told.invoke(NEW)
    # Of stored documents, in a chain.
    found = RunnableLambda(vs.evidence_search).batch(IDS[:3])
    assert found == [vs.evidence_search(id_) for id_ in IDS[:3]]


def test_retrievers_refuse_arguments_without_effect() -> None:
    vs = filled()
    with pytest.raises(ValueError, match=r"classifier.*evidence"):
        vs.as_retriever(classifier=classifier)
    with pytest.raises(ValueError, match="EvidenceVectorStore, got InMemoryVectorStore"):
        EvidenceRetriever(vectorstore=InMemoryVectorStore(EMBEDDINGS), search_type="evidence")
    with pytest.raises(ValueError, match="search_type of nearest not allowed"):
        vs.as_retriever(search_type="nearest")
    with pytest.raises(ValueError, match="label"):
        vs.as_retriever(search_type="evidence").invoke(NEW)
    with pytest.raises(TypeError, match="fetch_k"):
        vs.as_retriever(search_kwargs={"fetch_k": 50}).invoke(NEW)


# --- async ------------------------------------------------------------------------------------------------------------


EVEN: dict[str, Any] = {"filter": {"parity": "even"}}
ANSWER = Document(page_content=NEW, metadata={"label": "complaint"})
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("similarity_search", (NEW, 3), EVEN),
    ("similarity_search_with_score", (NEW, 3), {}),
    ("similarity_search_with_relevance_scores", (NEW, 3), {"score_threshold": 0.4}),
    ("similarity_search_by_vector", (XQ.tolist(), 3), {}),
    ("max_marginal_relevance_search", (NEW, 3, 9), {}),
    ("max_marginal_relevance_search_by_vector", (XQ.tolist(), 3), {}),
    ("evidence_search", (IDS[3], 3), EVEN),
    ("evidence_search", (ANSWER, 3), EVEN),
    ("evidence_search_with_score", (ANSWER, 3), {}),
    ("evidence_search_by_vector", (XQ.tolist(), 3), {"label": "complaint"}),
    ("get_by_ids", (IDS[:2],), {}),
]


@pytest.mark.parametrize(("name", "arguments", "options"), CALLS)
async def test_async_waits_for_the_embedding(name: str, arguments: Any, options: Any) -> None:
    vs = await EvidenceVectorStore.afrom_texts(TEXTS, AsyncOnly(), METADATAS, ids=IDS)
    answer = await getattr(vs, f"a{name}")(*arguments, **options)
    assert answer == getattr(filled(), name)(*arguments, **options)


async def test_async_changes_and_retrievers_wait_for_the_embedding() -> None:
    tickets = zip(TEXTS, METADATAS, strict=True)
    documents = [Document(page_content=text, metadata=metadata) for text, metadata in tickets]
    vs = await EvidenceVectorStore.afrom_documents(documents, AsyncOnly(), ids=IDS)
    retriever = vs.as_retriever(search_type="evidence", classifier=classifier)
    assert ids_of(await retriever.ainvoke(NEW)) == nearest(XQ, 4, of_other_class(classifier(NEW)))
    await vs.aadd_documents([ANSWER], ids=["new"])
    await vs.arelabel({"new": "request"})
    assert (await vs.aget_by_ids(["new"]))[0].metadata == {"label": "request"}
    await vs.adelete(["new"])
    assert await vs.aget_by_ids(["new"]) == []


# --- changes ----------------------------------------------------------------------------------------------------------


def test_adding_takes_a_class_or_not_and_makes_ids() -> None:
    vs = EvidenceVectorStore(EMBEDDINGS)
    documents = [
        Document(page_content=TEXTS[0], metadata={"label": "complaint"}, id="a"),
        Document(page_content=TEXTS[1]),
    ]
    added = vs.add_documents(documents)
    assert added[0] == "a"
    assert len(set(added)) == 2
    assert documents[1].id is None
    assert documents[0].metadata == {"label": "complaint"}
    vectors = embed(TEXTS[2:4]).tolist()
    vs.add_embeddings(
        list(zip(TEXTS[2:4], vectors, strict=True)), [{"label": "complaint"}, None], ids=["c", "d"]
    )
    assert [d.page_content for d in vs.get_by_ids(["d", "c", "nobody"])] == [TEXTS[3], TEXTS[2]]
    assert ids_of(vs.similarity_search(TEXTS[2], 1)) == ["c"]
    assert vs.add_texts([]) == []
    assert len(vs.add_texts(iter(TEXTS[4:6]))) == 2
    for call in (vs.add_texts, vs.get_by_ids, vs.delete):
        with pytest.raises(TypeError, match="must be a sequence, got str"):
            call("hello")
    assert len(vs.store) == 6
    assert vs.embeddings is vs.embedding
    assert EvidenceVectorStore(EMBEDDINGS).store.d == D  # which a text tells


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        (lambda document: document.metadata["place"] > 4, lambda one: one["place"] <= 4),
        (
            {"$and": [{"parity": {"$ne": "even"}}, {"place": {"$lt": 4}}]},
            lambda one: one["place"] % 2 == 0 or one["place"] >= 4,
        ),
        ({}, lambda _: False),
    ],
)
def test_deleting_by_a_filter(chosen: Any, kept: Any) -> None:
    vs = filled()
    assert vs.delete(filter=chosen) is True
    assert vs.store.ids == [id_ for id_, one in zip(IDS, METADATAS, strict=True) if kept(one)]
    assert asyncio.run(vs.adelete(filter={"place": -1})) is True
    with pytest.raises(TypeError, match="either ids or filter"):
        vs.delete(IDS[:1], filter=chosen)


def test_copies_share_nothing() -> None:
    vs = filled()
    twin = copy.deepcopy(vs)
    twin.delete()
    found = (len(twin.store), ids_of(vs.similarity_search(NEW, 20)))
    assert found == (0, ids_of(filled().similarity_search(NEW, 20)))


def test_langchains_indexing_api() -> None:
    vs = EvidenceVectorStore(EMBEDDINGS)
    records = InMemoryRecordManager("tickets")
    records.create_schema()
    documents = [
        Document(page_content=text, metadata={"source": str(i % 2), "label": label})
        for i, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True))
    ]
    options: Any = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256"}
    assert index(documents, records, vs, **options)["num_added"] == len(TEXTS)
    expected = {"num_added": 0, "num_updated": 0, "num_skipped": len(TEXTS) - 2, "num_deleted": 2}
    assert index(documents[2:], records, vs, **options) == expected
    found = [d.page_content for d in vs.similarity_search(NEW, 3)]
    assert found == [TEXTS[IDS.index(id_)] for id_ in nearest(XQ, 3, np.arange(2, len(TEXTS)))]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda vs: vs.add_texts(["a", "b"], [{}]), "metadatas"),
        (lambda vs: vs.add_texts(["a", "b"], ids=["a"]), "ids"),
        (lambda vs: vs.add_texts(["a", "b"], ids=["same", "same"]), "same"),
        (lambda vs: vs.add_texts(["a"], [{"made": object()}]), "made"),
        (lambda vs: vs.add_texts(["a"], [[1]]), r"metadatas must hold mappings or None, got \[1\]"),
        (lambda vs: vs.add_texts(["a"], nonsense=1), "nonsense"),
        (lambda vs: vs.similarity_search(NEW, k=0), "k must be at least 1"),
        (lambda vs: vs.similarity_search(NEW, filter={"place": {"$gte 3": 1}}), r"\$gte 3"),
        (lambda vs: vs.similarity_search_by_vector([1.0]), f"{D}"),
        (lambda vs: vs.evidence_search(3), "int"),
        (lambda vs: vs.evidence_search_by_vector([0.5] * D), "label"),
    ],
)
def test_errors_name_the_fault_and_change_nothing(change: Any, message: str) -> None:
    vs = filled()
    before = vs.get_by_ids(IDS), vs.similarity_search(NEW, 20)
    with pytest.raises((ValueError, TypeError, KeyError), match=message):
        change(vs)
    assert (vs.get_by_ids(IDS), vs.similarity_search(NEW, 20)) == before


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_hold_nothing_pickled(tmp_path: Path) -> None:
    vs = filled()
    vs.save_local(str(tmp_path / "tickets"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"langchain_core" in path.read_bytes() for path in files)


def test_loading_a_missing_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        EvidenceVectorStore.load_local(tmp_path / "nothing", EMBEDDINGS)
