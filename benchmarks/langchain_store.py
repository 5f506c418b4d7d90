"""How fast is our LangChain store next to langchain-community's FAISS store, and how exact under a filter?

100,000 documents with given embeddings of 384 dimensions: add, search, filtered search, save, load, in turns, each
through LangChain's own methods. Theirs takes an exact FAISS index (inner products of unit vectors), too; under a filter
it takes the ``fetch_k`` most similar documents, 20 if not told otherwise, and drops what does not match. Recall is that
of the exact results, from a product of all vectors. Wanted: no slower in any step, and a recall of 1 under any filter.

Searches of one query are timed on one thread by the processor's clock, which a shared machine disturbs least, and with
FAISS's own number of threads by the wall's; add, save and load by both clocks, since files are waited for (ours are on
the disk, by fsync, when saving ends; theirs need not be).

    python benchmarks/langchain_store.py
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import faiss
import numpy as np
from common import paired_times, save
from langchain_community.docstore.in_memory import InMemoryDocstore
from langchain_community.vectorstores.faiss import FAISS, DistanceStrategy
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from cfe_faiss.integrations.langchain import EvidenceVectorStore

N, D, QUERIES, K, ROUNDS = 100_000, 384, 20, 4, 5
FEW = 3  # queries for which theirs fetches all documents, which takes half a second each
CLUSTERS, CLASSES = 200, ("billing", "delivery", "praise", "returns")
SELECTIVITIES = (0.5, 0.01, 0.001)
_PARTS = 10_000


class Lookup(Embeddings):
    """Embeddings that are known: lists of Python's floats, as models in LangChain return them."""

    def __init__(self, texts: list[str], X: NDArray[np.float32]) -> None:
        self.vectors = dict(zip(texts, X.tolist(), strict=True))

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.vectors[text] for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.vectors[text]


class Corpus:
    """Texts with clustered unit vectors, classes that follow the clusters, and one random number for filters."""

    def __init__(self, n: int, d: int, queries: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        cluster = rng.integers(0, CLUSTERS, n + queries)
        X = rng.normal(size=(CLUSTERS, d))[cluster] + 1.5 * rng.normal(size=(n + queries, d))
        X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
        labels = np.where(
            rng.random(n + queries) < 0.9, cluster, rng.integers(0, CLUSTERS, n + queries)
        ) % len(CLASSES)
        texts = [f"ticket {i}" for i in range(n + queries)]
        self.embedding = Lookup(texts, X)
        self.X, self.Q = X[:n], X[n:]
        self.texts, self.queries = texts[:n], texts[n:]
        self.ids = [f"id-{i}" for i in range(n)]
        self.part = rng.integers(0, _PARTS, n)
        self.labels, self.query_labels = labels[:n], [CLASSES[label] for label in labels[n:]]

    def metadatas(self) -> list[dict[str, Any]]:
        return [
            {"label": CLASSES[label], "part": part}
            for label, part in zip(self.labels.tolist(), self.part.tolist(), strict=True)
        ]

    def exact(self, query: int, allowed: NDArray[np.bool_]) -> NDArray[np.float32]:
        """Return the similarities of the best K among the allowed documents."""
        similarity = self.X[allowed] @ self.Q[query]
        return np.sort(similarity)[::-1][:K]


def empty(rival: str, embedding: Embeddings, d: int) -> Any:
    if rival == "ours":
        return EvidenceVectorStore(embedding)
    index = faiss.IndexFlatIP(d)
    return FAISS(
        embedding,
        index,
        InMemoryDocstore(),
        {},
        distance_strategy=DistanceStrategy.MAX_INNER_PRODUCT,
    )


def load(rival: str, folder: Path, embedding: Embeddings) -> Any:
    if rival == "ours":
        return EvidenceVectorStore.load_local(folder, embedding)
    options: dict[str, Any] = {"distance_strategy": DistanceStrategy.MAX_INNER_PRODUCT}
    return FAISS.load_local(str(folder), embedding, allow_dangerous_deserialization=True, **options)


Seconds = dict[str, dict[str, dict[str, list[float]]]]  # by step, rival and clock


def whole_stores(corpus: Corpus, rounds: int, folder: Path) -> tuple[Seconds, dict[str, Any]]:
    """Time adding, saving and loading, in turns; return the times and the last stores."""
    seconds: Seconds = {}
    stores: dict[str, Any] = {}

    def timed(step: str, rival: str, function: Callable[[], Any]) -> Any:
        wall, processor = time.perf_counter(), time.process_time()
        result = function()
        times = seconds.setdefault(step, {}).setdefault(rival, {"wall": [], "processor": []})
        times["wall"].append(time.perf_counter() - wall)
        times["processor"].append(time.process_time() - processor)
        return result

    for _ in range(rounds):
        for rival in ("ours", "theirs"):
            store, metadatas = empty(rival, corpus.embedding, corpus.X.shape[1]), corpus.metadatas()
            timed("add", rival, lambda: store.add_texts(corpus.texts, metadatas, ids=corpus.ids))  # noqa: B023
            timed("save", rival, lambda: store.save_local(str(folder / rival)))  # noqa: B023
            read = partial(load, rival, folder / rival, corpus.embedding)
            stores[rival] = timed("load", rival, read)
    return seconds, stores


def recall(found: list[list[Any]], corpus: Corpus, allowed: list[NDArray[np.bool_]]) -> float:
    """Return which share of the exact best K came back; documents as similar as the last of them count."""
    hits = wanted = 0
    places = {id_: i for i, id_ in enumerate(corpus.ids)}
    for query, documents in enumerate(found):
        exact = corpus.exact(query, allowed[query])
        wanted += len(exact)
        if len(exact):
            scores = [
                float(corpus.X[places[document.id]] @ corpus.Q[query]) for document in documents
            ]
            hits += min(sum(bool(score >= exact[-1] - 1e-6) for score in scores), len(exact))
    return hits / wanted if wanted else 1.0


def compare(
    corpus: Corpus,
    searches: dict[str, Callable[[int], list[Any]]],
    allowed: list[NDArray[np.bool_]],
    rounds: int,
) -> dict[str, Any]:
    """Time each rival's searches, a query for each row of ``allowed``, in turns; tell milliseconds a query."""
    queries = range(len(allowed))
    functions = {name: lambda s=s: [s(i) for i in queries] for name, s in searches.items()}  # type: ignore[misc]
    alone = faiss.omp_get_max_threads() == 1
    medians, _ = paired_times(functions, rounds, time.process_time if alone else time.perf_counter)
    return {
        name: {
            "ms_per_query": 1e3 * medians[name] / len(queries),
            "recall": recall([search(i) for i in queries], corpus, allowed),
        }
        for name, search in searches.items()
    }


def searches(corpus: Corpus, stores: dict[str, Any], rounds: int) -> dict[str, Any]:
    n, queries, ours, theirs = len(corpus.ids), corpus.queries, stores["ours"], stores["theirs"]
    every = [np.ones(n, bool)] * len(queries)
    plain: dict[str, Callable[[int], list[Any]]] = {
        name: lambda i, store=store: store.similarity_search(queries[i], K)  # type: ignore[misc]
        for name, store in (("ours", ours), ("theirs", theirs))
    }
    result: dict[str, Any] = {"search": compare(corpus, plain, every, rounds)}
    for share in SELECTIVITIES:
        wanted = {"part": {"$lt": int(share * _PARTS)}}
        allowed = [corpus.part < share * _PARTS] * len(queries)
        rivals: dict[str, Callable[[int], list[Any]]] = {
            "ours": lambda i, f=wanted: ours.similarity_search(queries[i], K, filter=f),  # type: ignore[misc]
            "theirs": lambda i, f=wanted: theirs.similarity_search(queries[i], K, filter=f),  # type: ignore[misc]
        }
        all_fetched: dict[str, Callable[[int], list[Any]]] = {
            "theirs, fetch_k all": lambda i, f=wanted: theirs.similarity_search(
                queries[i], K, filter=f, fetch_k=n
            ),  # type: ignore[misc]
        }
        result[f"filtered, {share:.1%}"] = compare(corpus, rivals, allowed, rounds)
        if faiss.omp_get_max_threads() == 1:
            result[f"filtered, {share:.1%}"] |= compare(corpus, all_fetched, allowed[:FEW], 1)
    others = [np.array(CLASSES)[corpus.labels] != label for label in corpus.query_labels]
    evidence: dict[str, Callable[[int], list[Any]]] = {
        "ours": lambda i: ours.evidence_search_by_vector(
            corpus.Q[i], K, label=corpus.query_labels[i]
        ),
        "theirs": lambda i: theirs.similarity_search(
            queries[i], K, filter={"label": {"$neq": corpus.query_labels[i]}}
        ),
    }
    result["evidence"] = compare(corpus, evidence, others, rounds)
    return result


def measure(n: int, d: int, queries: int, rounds: int) -> dict[str, Any]:
    corpus, threads = Corpus(n, d, queries), faiss.omp_get_max_threads()
    with tempfile.TemporaryDirectory() as folder:
        seconds, stores = whole_stores(corpus, rounds, Path(folder))
        sizes = {
            rival: sum(
                path.stat().st_size for path in (Path(folder) / rival).rglob("*") if path.is_file()
            )
            for rival in stores
        }
        found = {}
        for number in sorted({1, threads}):
            faiss.omp_set_num_threads(number)
            found[str(number)] = searches(corpus, stores, rounds)
    return {
        "documents": n,
        "dimension": d,
        "k": K,
        "queries": queries,
        "rounds": rounds,
        "seconds": seconds,
        "median_seconds": {
            step: {
                rival: {clock: median(values) for clock, values in times.items()}
                for rival, times in rivals.items()
            }
            for step, rivals in seconds.items()
        },
        "bytes_on_disk": sizes,
        "searches_by_threads": found,
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=N)
    parser.add_argument("--dimension", type=int, default=D)
    parser.add_argument("--queries", type=int, default=QUERIES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--name", default="langchain_store", help="of the result")
    args = parser.parse_args(argv)
    result = measure(args.documents, args.dimension, args.queries, args.rounds)
    for step, times in result["median_seconds"].items():
        print(f"{step}: {times}")
    for threads, steps in result["searches_by_threads"].items():
        for step, rivals in steps.items():
            print(f"{step}, {threads} threads: {rivals}")
    print(f"written to {save(args.name, result)}")


if __name__ == "__main__":
    main()
