"""The LangChain store: LangChain's own tests of vector stores, and evidence against brute force."""

import asyncio
import copy
import math
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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

IDS = [f"ticket-{i}" for i in range(len(TEXTS))]
CLASSES = ["request", "complaint"]
LABELS = [CLASSES[label] for label in classify(TEXTS)]
METADATAS = [{"label": label, "place": i, "even": i % 2 == 0} for i, label in enumerate(LABELS)]
NEW = "The blue lamp arrived broken and nobody answers"


class TextEmbeddings(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return embed(texts).tolist()

    def embed_query(self, text: str) -> list[float]:
        return embed([text])[0].tolist()


class AsyncOnly(TextEmbeddings):
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
    return EvidenceVectorStore.from_texts(TEXTS, embedding or TextEmbeddings(), METADATAS, ids=IDS)


def ids_of(documents: list[Any]) -> list[str]:
    return [document.id for document in documents]


def nearest(query: str, k: int, places: Any = None) -> list[str]:
    """Return the ids of the k tickets most similar to a text, among those at ``places``, by brute force."""
    places = np.arange(len(TEXTS)) if places is None else np.asarray(places, int)
    order = np.argsort(-(embed(TEXTS)[places] @ embed([query])[0]), kind="stable")
    return [IDS[i] for i in places[order[:k]]]


def of_other_class(label: str) -> Any:
    return np.flatnonzero(np.array(LABELS) != label)


class TestStandard(VectorStoreIntegrationTests):
    """LangChain's own tests, sync and async."""

    @pytest.fixture
    def vectorstore(self) -> EvidenceVectorStore:
        return EvidenceVectorStore(self.get_embeddings())


# --- evidence ---------------------------------------------------------------------------------------------------------


def test_evidence_is_the_nearest_of_another_class() -> None:
    vs = filled()
    for place, (id_, text, label) in enumerate(zip(IDS, TEXTS, LABELS, strict=True)):
        expected = nearest(text, 3, of_other_class(label))
        found = vs.evidence_search(id_, k=3)
        assert ids_of(found) == expected
        assert all(document.metadata["label"] != label for document in found)
        assert found[0].metadata == METADATAS[IDS.index(expected[0])]
        (document,) = vs.get_by_ids([id_])
        assert vs.evidence_search(document, k=3) == found
        scored = vs.evidence_search_with_score(id_, k=3)
        assert [document for document, _ in scored] == found
        similarities = embed(TEXTS) @ embed([text])[0]
        assert [score for _, score in scored] == pytest.approx(
            [similarities[IDS.index(document.id)] for document in found], abs=1e-6
        )
        by_vector = vs.evidence_search_by_vector(embed(TEXTS)[place].tolist(), k=3, label=label)
        assert ids_of(by_vector) == expected
    assert len(vs.evidence_search(IDS[0], k=50)) == len(of_other_class(LABELS[0]))


def test_evidence_of_a_document_that_is_not_stored() -> None:
    vs = filled()
    new = Document(page_content=NEW, metadata={"label": "complaint"})
    assert ids_of(vs.evidence_search(new, k=4)) == nearest(NEW, 4, of_other_class("complaint"))
    new.metadata["label"] = "request"
    assert ids_of(vs.evidence_search(new, k=4)) == nearest(NEW, 4, of_other_class("request"))
    new.metadata["label"] = "praise"
    with pytest.raises(ValueError, match=r"complaint.*praise"):
        vs.evidence_search(new)
    store = cfe.EvidenceStore(D, class_names=["praise", *CLASSES])
    vs = EvidenceVectorStore.from_texts(TEXTS, TextEmbeddings(), METADATAS, ids=IDS, store=store)
    assert ids_of(vs.evidence_search(new, k=4)) == nearest(NEW, 4)


def test_the_stored_document_counts_rather_than_the_copy() -> None:
    vs = filled()
    (old,) = vs.get_by_ids([IDS[0]])
    vs.relabel({IDS[0]: "request"})
    assert old.metadata["label"] == "complaint"
    found = ids_of(vs.evidence_search(old, k=4))
    assert found == nearest(TEXTS[0], 4, of_other_class("request")[1:])


def test_classes_may_be_integers() -> None:
    vs = EvidenceVectorStore(TextEmbeddings(), label_key="class")
    labels = [int(label) for label in classify(TEXTS)]
    vs.add_texts(TEXTS, [{"class": label} for label in labels], ids=IDS)
    for i, id_ in enumerate(IDS):
        found = vs.evidence_search(id_, k=2)
        assert ids_of(found) == nearest(TEXTS[i], 2, of_other_class(LABELS[i]))
        assert [document.metadata for document in found] == [{"class": 1 - labels[i]}] * 2
    assert type(found[0].metadata["class"]) is int
    answer = ids_of(vs.similarity_search(NEW, k=3, filter={"class": 0}))
    assert answer == nearest(NEW, 3, of_other_class("complaint"))


def test_documents_without_a_class_are_found_but_are_no_evidence() -> None:
    vs = filled()
    vs.add_documents([Document(page_content=NEW, metadata={"place": 99}, id="new")])
    found = vs.similarity_search(NEW, k=1)
    assert found == [Document(page_content=NEW, metadata={"place": 99}, id="new")]
    for label in CLASSES:
        assert "new" not in ids_of(
            vs.evidence_search_by_vector(embed([NEW])[0].tolist(), k=50, label=label)
        )
    for query in ("new", vs.get_by_ids(["new"])[0], Document(page_content=NEW)):
        with pytest.raises(ValueError, match=r"label"):
            vs.evidence_search(query)
    vs.relabel({"new": "complaint"})
    assert ids_of(vs.evidence_search("new", k=4)) == nearest(NEW, 4, of_other_class("complaint"))


def test_relabelling_by_another_classifier() -> None:
    vs = filled()
    flipped = {id_: CLASSES[label == "request"] for id_, label in zip(IDS, LABELS, strict=True)}
    vs.relabel(flipped)
    assert [document.metadata["label"] for document in vs.get_by_ids(IDS)] == list(flipped.values())
    for id_, text, label in zip(IDS, TEXTS, LABELS, strict=True):
        assert ids_of(vs.evidence_search(id_, k=3)) == nearest(text, 3, of_other_class(label))
    vs.relabel({IDS[0]: "praise", IDS[1]: None})
    expected = ["praise", None]
    assert [document.metadata.get("label") for document in vs.get_by_ids(IDS[:2])] == expected
    before = vs.get_by_ids(IDS)
    with pytest.raises((KeyError, ValueError), match="nobody"):
        vs.relabel({IDS[2]: "praise", "nobody": "praise"})
    assert vs.get_by_ids(IDS) == before


# --- searches ---------------------------------------------------------------------------------------------------------


def test_similarity() -> None:
    vs = filled()
    for query in [*TEXTS, NEW]:
        assert ids_of(vs.similarity_search(query, k=5)) == nearest(query, 5)
        found = vs.similarity_search_by_vector(embed([query])[0].tolist(), k=5)
        assert found == vs.similarity_search(query, k=5)
    scored = vs.similarity_search_with_score(NEW, k=20)
    found = [score for _, score in scored]
    assert found == pytest.approx(sorted(embed(TEXTS) @ embed([NEW])[0], reverse=True))
    assert all(type(score) is float for _, score in scored)


FILTERS: list[tuple[Any, Any]] = [
    ({"label": "complaint"}, lambda m: m["label"] == "complaint"),
    ({"even": True}, lambda m: m["even"]),
    ({"place": {"$gte": 3, "$lt": 9}}, lambda m: 3 <= m["place"] < 9),
    (
        {"$or": [{"place": {"$in": [0, 1]}}, {"label": {"$ne": "complaint"}}]},
        lambda m: m["place"] < 2 or m["label"] != "complaint",
    ),
    (lambda document: "lamp" in document.page_content, lambda m: "lamp" in TEXTS[m["place"]]),
    ({"place": -1}, lambda m: False),
]


@pytest.mark.parametrize(("wanted", "keeps"), FILTERS)
def test_every_search_is_exact_under_a_filter(wanted: Any, keeps: Any) -> None:
    vs = filled()
    kept = [i for i, metadata in enumerate(METADATAS) if keeps(metadata)]
    vector = embed([NEW])[0].tolist()
    expected = nearest(NEW, 5, kept)
    assert ids_of(vs.similarity_search(NEW, k=5, filter=wanted)) == expected
    assert (
        ids_of([d for d, _ in vs.similarity_search_with_score(NEW, k=5, filter=wanted)]) == expected
    )
    assert (
        ids_of([d for d, _ in vs.similarity_search_with_relevance_scores(NEW, k=5, filter=wanted)])
        == expected
    )
    assert ids_of(vs.similarity_search_by_vector(vector, k=5, filter=wanted)) == expected
    assert ids_of(vs.as_retriever(search_kwargs={"k": 5, "filter": wanted}).invoke(NEW)) == expected
    answer = ids_of(vs.max_marginal_relevance_search(NEW, k=5, lambda_mult=1.0, filter=wanted))
    assert answer == expected
    others = [i for i in kept if LABELS[i] != LABELS[0]]
    evidence = nearest(TEXTS[0], 3, others)
    assert ids_of(vs.evidence_search(IDS[0], k=3, filter=wanted)) == evidence
    answer = ids_of([d for d, _ in vs.evidence_search_with_score(IDS[0], k=3, filter=wanted)])
    assert answer == evidence
    found = vs.evidence_search_by_vector(
        embed(TEXTS)[0].tolist(), k=3, label=LABELS[0], filter=wanted
    )
    assert ids_of(found) == evidence


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


def test_marginal_relevance_of_texts() -> None:
    vs = filled()
    found = vs.max_marginal_relevance_search(NEW, k=4, fetch_k=10, lambda_mult=0.3)
    near = [IDS.index(id_) for id_ in nearest(NEW, 10)]
    chosen = maximal_marginal_relevance(embed([NEW])[0], list(embed(TEXTS)[near]), 0.3, 4)
    assert ids_of(found) == [IDS[near[i]] for i in chosen]
    vector = embed([NEW])[0].tolist()
    answer = vs.max_marginal_relevance_search_by_vector(vector, k=4, fetch_k=10, lambda_mult=0.3)
    assert answer == found


# --- retrievers -------------------------------------------------------------------------------------------------------


def test_retrievers() -> None:
    vs = filled()
    assert ids_of(vs.as_retriever().invoke(NEW)) == nearest(NEW, 4)
    answer = vs.as_retriever(search_type="mmr", search_kwargs={"k": 3}).invoke(NEW)
    assert answer == vs.max_marginal_relevance_search(NEW, k=3)
    threshold = {"k": 14, "score_threshold": 0.5}
    found = vs.as_retriever(
        search_type="similarity_score_threshold", search_kwargs=threshold
    ).invoke(NEW)
    assert ids_of(found) == nearest(NEW, int((embed(TEXTS) @ embed([NEW])[0] >= 0.5).sum()))


def classifier(text: str) -> str:
    return CLASSES[int(classify([text])[0])]


def test_a_retriever_of_evidence() -> None:
    vs = filled()
    retriever = vs.as_retriever(
        search_type="evidence", classifier=classifier, search_kwargs={"k": 3}
    )
    for text in [NEW, *TEXTS]:
        assert ids_of(retriever.invoke(text)) == nearest(text, 3, of_other_class(classifier(text)))
    found = ids_of(retriever.invoke(NEW, label="request", k=2))
    assert found == nearest(NEW, 2, of_other_class("request"))
    told = vs.as_retriever(search_type="evidence", search_kwargs={"k": 3, "label": "complaint"})
    assert ids_of(told.invoke(NEW)) == nearest(NEW, 3, of_other_class("complaint"))
    assert asyncio.run(told.ainvoke(NEW)) == told.invoke(NEW)
    # Of stored documents, in a chain.
    found = RunnableLambda(vs.evidence_search).batch(IDS[:3])
    assert found == [vs.evidence_search(id_) for id_ in IDS[:3]]


def test_retrievers_refuse_arguments_without_effect() -> None:
    vs = filled()
    with pytest.raises(ValueError, match=r"classifier.*evidence"):
        vs.as_retriever(classifier=classifier)
    with pytest.raises(ValueError, match="EvidenceVectorStore, got InMemoryVectorStore"):
        EvidenceRetriever(vectorstore=InMemoryVectorStore(TextEmbeddings()), search_type="evidence")
    with pytest.raises(ValueError, match="search_type of nearest not allowed"):
        vs.as_retriever(search_type="nearest")
    with pytest.raises(ValueError, match="label"):
        vs.as_retriever(search_type="evidence").invoke(NEW)
    with pytest.raises(TypeError, match="fetch_k"):
        vs.as_retriever(search_kwargs={"fetch_k": 50}).invoke(NEW)


# --- async ------------------------------------------------------------------------------------------------------------


async def test_async_waits_for_the_embedding() -> None:
    vs = await EvidenceVectorStore.afrom_texts(TEXTS, AsyncOnly(), METADATAS, ids=IDS)
    same = filled()
    wanted = {"even": True}
    vector = embed([NEW])[0].tolist()
    answer = await vs.asimilarity_search(NEW, 3, filter=wanted)
    assert answer == same.similarity_search(NEW, 3, filter=wanted)
    answer = await vs.asimilarity_search_with_score(NEW, 3)
    assert answer == same.similarity_search_with_score(NEW, 3)
    found = await vs.asimilarity_search_with_relevance_scores(NEW, 3, score_threshold=0.4)
    assert found == same.similarity_search_with_relevance_scores(NEW, 3, score_threshold=0.4)
    answer = await vs.asimilarity_search_by_vector(vector, 3)
    assert answer == same.similarity_search_by_vector(vector, 3)
    answer = await vs.amax_marginal_relevance_search(NEW, 3, 9)
    assert answer == same.max_marginal_relevance_search(NEW, 3, 9)
    answer = await vs.amax_marginal_relevance_search_by_vector(vector, 3)
    assert answer == same.max_marginal_relevance_search_by_vector(vector, 3)
    new = Document(page_content=NEW, metadata={"label": "complaint"})
    for query in (IDS[3], new):
        answer = await vs.aevidence_search(query, 3, filter=wanted)
        assert answer == same.evidence_search(query, 3, filter=wanted)
        answer = await vs.aevidence_search_with_score(query, 3)
        assert answer == same.evidence_search_with_score(query, 3)
    found = await vs.aevidence_search_by_vector(vector, 3, label="complaint")
    assert found == same.evidence_search_by_vector(vector, 3, label="complaint")
    retriever = vs.as_retriever(search_type="evidence", classifier=classifier)
    assert ids_of(await retriever.ainvoke(NEW)) == nearest(NEW, 4, of_other_class(classifier(NEW)))
    await vs.aadd_documents([new], ids=["new"])
    await vs.arelabel({"new": "request"})
    assert (await vs.aget_by_ids(["new"]))[0].metadata == {"label": "request"}
    await vs.adelete(["new"])
    assert await vs.aget_by_ids(["new"]) == []
    documents = [
        Document(page_content=text, metadata=m) for text, m in zip(TEXTS, METADATAS, strict=True)
    ]
    vs = await EvidenceVectorStore.afrom_documents(documents, AsyncOnly(), ids=IDS)
    assert ids_of(await vs.asimilarity_search(NEW, 3)) == nearest(NEW, 3)


# --- changes ----------------------------------------------------------------------------------------------------------

_classes = st.sampled_from(["a", "b", "c", None])
_ids = st.sampled_from([f"id {i}" for i in range(6)])
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), _ids, st.integers(0, 359), _classes),
        st.tuples(st.just("delete"), _ids),
        st.tuples(st.just("relabel"), _ids, _classes),
    ),
    max_size=20,
)


@given(_steps)
def test_changes_in_any_order(steps: list[Any]) -> None:
    vs = EvidenceVectorStore(Circle(), store=cfe.EvidenceStore(2, class_names=["a", "b", "c"]))
    stored = {}
    for name, id_, *values in steps:
        if name == "add":
            stored[id_] = values
            vs.add_texts(
                [str(values[0])], [{} if values[1] is None else {"label": values[1]}], ids=[id_]
            )
        elif name == "delete":
            stored.pop(id_, None)
            vs.delete([id_])
        elif id_ in stored:
            stored[id_][1] = values[0]
            vs.relabel({id_: values[0]})
    documents = {
        d.id: (float(d.page_content), d.metadata.get("label"))
        for d in vs.get_by_ids([f"id {i}" for i in range(6)])
    }
    assert documents == {id_: tuple(values) for id_, values in stored.items()}
    for angle in (0, 100):
        found = vs.similarity_search_with_score(str(angle), k=6)
        expected = sorted(
            (math.cos(math.radians(angle - a)) for a, _ in stored.values()), reverse=True
        )
        assert [score for _, score in found] == pytest.approx(expected, abs=1e-6)
        for label in "abc":
            found = vs.evidence_search_with_score_by_vector(
                Circle().embed_query(str(angle)), 6, label=label
            )
            others = [a for a, other in stored.values() if other not in (None, label)]
            expected = sorted((math.cos(math.radians(angle - a)) for a in others), reverse=True)
            assert [score for _, score in found] == pytest.approx(expected, abs=1e-6)


def test_adding_takes_a_class_or_not_and_makes_ids() -> None:
    vs = EvidenceVectorStore(TextEmbeddings())
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
        list(zip(TEXTS[2:4], vectors, strict=True)), [{"label": "complaint"}, {}], ids=["c", "d"]
    )
    assert [d.page_content for d in vs.get_by_ids(["d", "c", "nobody"])] == [TEXTS[3], TEXTS[2]]
    assert ids_of(vs.similarity_search(TEXTS[2], 1)) == ["c"]
    assert vs.add_texts([]) == []
    assert vs.embeddings is vs.embedding


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        ({"even": True}, lambda one: not one["even"]),
        ({"label": {"$ne": "request"}}, lambda one: one["label"] == "request"),
        ({"place": {"$nin": [0, 1, 2]}}, lambda one: one["place"] <= 2),
        (lambda document: document.metadata["place"] > 4, lambda one: one["place"] <= 4),
        (
            {"$and": [{"even": {"$ne": True}}, {"place": {"$lt": 4}}]},
            lambda one: one["even"] or one["place"] >= 4,
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


def test_filters_that_exclude() -> None:
    vs = filled()
    found = vs.similarity_search(TEXTS[0], 20, filter={"label": {"$nin": ["request", "other"]}})
    assert {document.metadata["label"] for document in found} == {"complaint"}
    answer = ids_of(vs.similarity_search(TEXTS[0], 20, filter={"label": {"$ne": "request"}}))
    assert answer == ids_of(found)


def test_a_text_needs_no_metadata() -> None:
    vs = filled()
    vs.add_texts(["a", "b"], [None, {"label": "complaint"}], ids=["1", "2"])
    assert [one.metadata for one in vs.get_by_ids(["1", "2"])] == [{}, {"label": "complaint"}]


def test_copies_share_nothing() -> None:
    vs = filled()
    twin = copy.deepcopy(vs)
    twin.delete()
    found = (len(twin.store), ids_of(vs.similarity_search(NEW, 20)))
    assert found == (0, ids_of(filled().similarity_search(NEW, 20)))


def test_deleting() -> None:
    vs = filled()
    assert vs.delete(IDS[:3]) is True
    found = ids_of(vs.similarity_search(TEXTS[0], 20))
    assert found == nearest(TEXTS[0], 20, np.arange(3, len(TEXTS)))
    found = ids_of(vs.evidence_search(IDS[5], 20))
    assert found == nearest(TEXTS[5], 20, [i for i in of_other_class(LABELS[5]) if i > 2])
    assert vs.delete() is True  # as the interface says: no ids are all of them
    assert vs.similarity_search(TEXTS[0]) == []
    vs.add_texts(TEXTS, METADATAS, ids=IDS)
    assert ids_of(vs.evidence_search(IDS[0], 3)) == nearest(TEXTS[0], 3, of_other_class(LABELS[0]))


def test_langchains_indexing_api() -> None:
    vs = EvidenceVectorStore(TextEmbeddings())
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
    assert found == [TEXTS[IDS.index(id_)] for id_ in nearest(NEW, 3, np.arange(2, len(TEXTS)))]


def test_many_threads_may_add_to_an_empty_store() -> None:
    vs = EvidenceVectorStore(TextEmbeddings())
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda i: vs.add_texts([TEXTS[i]], [METADATAS[i]], ids=[IDS[i]]), range(len(TEXTS))
            )
        )
    assert [d.metadata for d in vs.get_by_ids(IDS)] == METADATAS
    assert ids_of(vs.evidence_search(IDS[0], 3)) == nearest(TEXTS[0], 3, of_other_class(LABELS[0]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda vs: vs.add_texts(["a", "b"], [{}]), "metadatas"),
        (lambda vs: vs.add_texts(["a", "b"], ids=["a"]), "ids"),
        (lambda vs: vs.add_texts(["a", "b"], ids=["same", "same"]), "same"),
        (lambda vs: vs.add_texts(["a"], [{"label": 0.5}]), "label"),
        (lambda vs: vs.add_texts(["a"], [{"made": object()}]), "made"),
        (lambda vs: vs.add_texts(["a"], [[1]]), r"metadatas must hold mappings or None, got \[1\]"),
        (lambda vs: vs.add_texts(["a"], nonsense=1), "nonsense"),
        (lambda vs: vs.similarity_search(NEW, k=0), "k must be at least 1"),
        (lambda vs: vs.similarity_search(NEW, filter={"place": {"$gte 3": 1}}), r"\$gte 3"),
        (lambda vs: vs.similarity_search_by_vector([1.0]), f"{D}"),
        (lambda vs: vs.evidence_search("nobody"), "nobody"),
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


def test_saving_and_loading_keeps_everything(tmp_path: Path) -> None:
    vs = EvidenceVectorStore(TextEmbeddings(), label_key="class")
    metadatas = [
        {
            "class": label,
            "place": i,
            "page_content": "mine",
            "nested": {"pages": [1, i]},
            "share": i / 3,
            "none": None,
        }
        for i, label in enumerate(LABELS)
    ]
    vs.add_texts(TEXTS, metadatas, ids=IDS)
    vs.save_local(str(tmp_path / "tickets"))
    loaded = EvidenceVectorStore.load_local(
        str(tmp_path / "tickets"), TextEmbeddings(), label_key="class"
    )
    assert loaded.get_by_ids(IDS) == vs.get_by_ids(IDS)
    assert [document.metadata for document in loaded.get_by_ids(IDS)] == metadatas
    for id_ in IDS:
        assert loaded.evidence_search_with_score(id_, 5) == vs.evidence_search_with_score(id_, 5)
    loaded.add_texts([NEW], [{"class": "complaint"}], ids=["new"])
    assert ids_of(loaded.evidence_search("new", 3)) == nearest(NEW, 3, of_other_class("complaint"))
    loaded.save_local(tmp_path / "tickets")
    assert (
        len(
            EvidenceVectorStore.load_local(
                tmp_path / "tickets", TextEmbeddings(), label_key="class"
            ).store
        )
        == 15
    )
    contents = b"".join(
        path.read_bytes() for path in sorted((tmp_path).rglob("*")) if path.is_file()
    )
    assert b"langchain_core" not in contents  # nothing is pickled


def test_an_empty_store_is_saved_too(tmp_path: Path) -> None:
    EvidenceVectorStore(TextEmbeddings()).save_local(tmp_path / "empty")
    loaded = EvidenceVectorStore.load_local(tmp_path / "empty", TextEmbeddings())
    assert loaded.similarity_search(NEW) == []
    loaded.add_texts(TEXTS, METADATAS, ids=IDS)
    found = ids_of(loaded.evidence_search(IDS[0], 3))
    assert found == nearest(TEXTS[0], 3, of_other_class(LABELS[0]))


def test_loading_a_missing_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing"):
        EvidenceVectorStore.load_local(tmp_path / "nothing", TextEmbeddings())


def test_over_a_store_of_ones_own() -> None:
    store = cfe.EvidenceStore(D)
    vs = EvidenceVectorStore(TextEmbeddings(), store=store)
    vs.add_texts(TEXTS, METADATAS, ids=IDS)
    assert vs.store is store
    assert len(store) == len(TEXTS)
