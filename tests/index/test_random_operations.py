"""Random sequences of all operations of an index against a model in plain NumPy.

A failure prints the arguments of :func:`run_sequence` that repeat it, and the operations before it.
"""

import copy
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from float_model import Model, Rules
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import assert_same_arrays, kept_rows, quick, unit_copy

import cfe_faiss as cfe

pytestmark = pytest.mark.usefixtures("without_sync")
KINDS = [
    "EvidenceFlat",
    "IDMap2,EvidenceFlat",
    "EvidenceIVF5,Flat",
    "EvidenceIVF4x2,Flat",
    "EvidenceIVF5,SQ8",
    "EvidenceIVF4,SQfp16",
    "EvidenceIVF4x2,SQfp16",
    "EvidenceIVF4,PQ1,RFlat",
    "EvidenceIVF4x2,PQ1,RFlat",
]


def last_bits(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float32]:
    """Return a few unit rows, the same in each call, that are opposite or differ in their last bits."""
    rows = np.random.default_rng(d).normal(size=(6, d)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    factors = 1 + rng.choice([-1, 0, 0, 1], (n, d)) * np.float32(2.0**-23)
    signs = rng.choice([-1, 1], (n, 1))
    return signs * rows[rng.integers(0, 6, n)] * np.where(rng.random((n, 1)) < 0.5, factors, 1)


DATA: dict[str, Callable[[np.random.Generator, int, int], NDArray[Any]]] = {
    "grid": lambda rng, n, d: rng.integers(-2, 3, (n, d)),  # ties, copies and zero rows
    "few": lambda rng, n, d: rng.integers(-1, 2, (n, d)),
    "zero": lambda rng, n, d: np.zeros((n, d)),
    "copies": lambda rng, n, d: rng.normal(size=(n, d))[rng.integers(0, max(1, n), n)],
    "offset": lambda rng, n, d: rng.normal(size=(n, d)) + 1000,
    "near copies": lambda rng, n, d: np.ones(d) * (1 + 1e-6 * rng.normal(size=(n, d))),
    "lengths": lambda rng, n, d: rng.normal(size=(n, d)) * rng.lognormal(sigma=3, size=(n, 1)),
    "large": lambda rng, n, d: 1e13 * rng.uniform(-1, 1, (n, d)) / np.sqrt(d),
    "last bits": last_bits,
    "tiny": lambda rng, n, d: 1e-20 * rng.normal(size=(n, d)),
}
BITS = {
    "bits": lambda rng, n, d: rng.random((n, d)) < 0.5,
    "few bits": lambda rng, n, d: rng.random((n, d)) < 2 / d,  # ties, copies and rows of zeros
    "most bits": lambda rng, n, d: rng.random((n, d)) < 0.97,
    "subsets": lambda rng, n, d: np.arange(d) < rng.integers(0, d + 1, (n, 1)),
}
HUGE = [np.inf, -np.inf, 1e300, -1e300, 3.4e38, -3.4e38]
ENDS = np.float32([-3.4e38, 3.4e38])
NOT_FOR_CODES = {"lengths", "large", "tiny"}  # beyond the range of scalar quantizers
SEL_FORMS: list[Callable[[Any], Any]] = [
    list,
    set,
    lambda ids: np.array(ids, np.int64),
    lambda ids: faiss.IDSelectorBatch(np.array(ids, np.int64)),
]
STEPS = 12
SLOW_SECONDS = 600
TEXTS = ["ham", "spam", "Ham", " ", "ünïcode", "a" * 40]


@dataclass
class Asked:
    """Queries: their vectors as given and as they are compared, labels, and ids of stored ones or None."""

    X: NDArray[np.float32]
    xq: NDArray[np.float32]
    labels: list[Any]
    ids: list[Any]


class Sequence:
    """An index, its model, and the operations so far. Every choice is drawn from one generator."""

    def __init__(self, kind: str, seed: int, folder: Path) -> None:
        self.rng = rng = np.random.default_rng(seed)
        self.folder = folder
        self.log: list[str] = []
        # partitions are for cosine
        metrics = ["cosine"] if "x2" in kind else ["cosine", "ip", "l2"]
        if "IVF" not in kind:
            metrics.append("tanimoto")
        names = [name for name in DATA if "SQ" not in kind or name not in NOT_FOR_CODES]
        self.metric = metrics[(seed + seed // len(names)) % len(metrics)]
        if self.metric == "tanimoto":
            names = list(BITS)
        self.data = names[seed % len(names)]
        self.d = int(rng.choice([1, 3, 8, 17, 40, 130]))
        self.texts = bool(rng.random() < 0.5)
        self.index: Any = quick(cfe.index_factory(self.d, kind, self.metric))
        self.model = Model(self.metric, positional=kind == "EvidenceFlat")
        self.note("new", self.d, self.metric, self.texts, self.data)
        if not self.index.is_trained:
            self.index.train(self.vectors(320))

    def note(self, *what: Any) -> None:
        self.log.append(" ".join(map(str, what)))

    # --- random values ----------------------------------------------------------------------------------------------

    def vectors(self, n: int) -> NDArray[np.float32]:
        return (DATA | BITS)[self.data](self.rng, n, self.d).astype(np.float32)

    def labels(self, n: int, *, unknown: bool = False) -> list[Any]:
        classes: list[Any] = TEXTS if self.texts else [0, 1, 2, 5, 2**40]
        drawn = [classes[i] for i in self.rng.integers(0, len(classes), n)]
        return [None if unknown and self.rng.random() < 0.15 else label for label in drawn]

    def given(self, labels: list[Any]) -> Any:
        """Return labels as an argument."""
        if self.texts:
            return labels
        return np.array([-1 if label is None else label for label in labels], np.int64)

    def some_ids(self, most: int = 12) -> list[int]:
        ids = self.model.ids
        number = min(len(ids), int(self.rng.integers(0, most + 1)))
        return [int(id_) for id_ in self.rng.choice(ids, number, replace=False)] if number else []

    def rows(self, X: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return vectors as the index keeps them."""
        X = unit_copy(X) if self.metric == "cosine" else X
        has_scalar_codes = self.index.stores_codes and self.index.k_factor is None
        return kept_rows(self.index, X) if has_scalar_codes else X

    def new_queries(self) -> Asked:
        nq = int(self.rng.choice([1, 1, 3, 9, 45]))
        X, ids = self.vectors(nq), self.model.ids
        if ids and self.rng.random() < 0.5:
            known = [int(id_) for id_ in self.rng.choice(ids, nq // 2 + 1)]
            X[: nq // 2 + 1] = self.model.vectors(known)
        xq = unit_copy(X) if self.metric == "cosine" else X
        return Asked(X, xq, self.labels(nq), [None] * nq)

    def stored_queries(self, ids: list[int]) -> Asked:
        xq = self.model.vectors(ids).reshape(len(ids), self.d)
        return Asked(xq, xq, self.model.labels(ids), ids)

    def threshold(self, xq: NDArray[np.float32]) -> float:
        """Return a score of the queries, so that some reach it exactly, or an extreme one."""
        scores = self.model.as_results(self.model.scores(xq)).ravel()
        extreme = len(scores) == 0 or self.rng.random() < 0.15
        return float(self.rng.choice(HUGE if extreme else scores))

    def rules(
        self, xq: NDArray[np.float32], *, per_label: bool = False, per_group: bool = False
    ) -> Rules:
        nq = len(xq)
        rules, rng, ids = Rules(), self.rng, [*self.model.ids, 10**6]
        if rng.random() < 0.5:
            return rules
        if per_group and rng.random() < 0.4:
            rules.per_group = int(rng.integers(1, 5))
        if rng.random() < 0.3:
            rules.sel = self.some_ids(200)
            rules.sel_form = SEL_FORMS[int(rng.integers(len(SEL_FORMS)))]
            if rng.random() < 0.5:
                rules.sel = np.isin(self.model.ids, rules.sel)
                rules.sel_form = np.asarray
        if rng.random() < 0.3:
            rules.exclude = [
                [int(i) for i in rng.choice(ids, rng.integers(0, 4))] for _ in range(nq)
            ]
        if rng.random() < 0.3:
            rules.within = tuple(sorted((self.threshold(xq), self.threshold(xq))))
        classes = self.model.classes()
        if not per_label and classes and rng.random() < 0.3:
            places = [rng.integers(0, len(classes), rng.integers(0, 3)) for _ in range(nq)]
            rules.exclude_labels = [[classes[i] for i in some] for some in places]
        if not per_label and rng.random() < 0.4:
            rules.neighbors = str(rng.choice(["own", "any"]))
        return rules

    def effort(self) -> tuple[dict[str, Any], bool]:
        """Return the options of an effort, and whether its results are exact."""
        efforts: list[tuple[dict[str, Any], bool]] = [
            ({"exact": True}, True),
            ({"exact": True, "memory": 1 << 10}, True),
            ({"recall": 1.0}, True),
        ]
        if self.index.has_lists:
            efforts += [
                ({"nprobe": 100}, True),
                ({"nprobe": int(self.rng.integers(1, 4))}, False),
                ({"nprobe": 2, "memory": 1 << 10}, False),
                ({"recall": float(self.rng.choice([0.5, 0.9]))}, False),
            ]
        return efforts[int(self.rng.integers(len(efforts)))]

    # --- operations -------------------------------------------------------------------------------------------------

    def add(self) -> None:
        n = int(self.rng.choice([0, 1, 2, 20, 70]))
        X, labels, ids = self.vectors(n), self.labels(n), self.model.next_ids(n)
        own = not self.model.positional and self.rng.random() < 0.4
        if own:
            ids = [
                int(i)
                for i in self.rng.permutation(500)[: n + len(self.model.rows)]
                if i not in self.model.rows
            ][:n]
            X, labels = X[: len(ids)], labels[: len(ids)]
        self.note("add", n, "own ids" if own else "")
        if not own and self.rng.random() < 0.2:
            self.index.add(X)
            labels = [None] * n
        elif own and self.rng.random() < 0.2:
            self.index.add_with_ids(X, ids)
            labels = [None] * len(ids)
        else:
            self.index.add_with_labels(X, self.given(labels), ids if own else None)
        self.model.put(ids, self.rows(X), labels)

    def relabel(self) -> None:
        everything = self.rng.random() < 0.2
        ids = self.model.ids if everything else self.some_ids()
        labels = self.labels(len(ids), unknown=True)
        self.note("relabel", "all" if everything else ids)
        self.index.relabel(self.given(labels), None if everything else ids)
        self.model.relabel(ids, labels)

    def remove(self) -> None:
        ids = self.model.ids[::2] if self.rng.random() < 0.1 else self.some_ids()
        unknown = np.array([*ids, 10**7], np.int64)
        forms = [unknown, faiss.IDSelectorBatch(unknown), {*ids}, np.isin(self.model.ids, ids)]
        forms.append([*ids, *ids])
        chosen = int(self.rng.integers(len(forms)))
        self.note("remove", ids, "form", chosen)
        assert self.index.remove_ids(forms[chosen]) == self.model.remove(ids)

    def update(self) -> None:
        ids = self.some_ids()
        X, labels = self.vectors(len(ids)), self.labels(len(ids), unknown=True)
        with_labels = self.rng.random() < 0.5
        self.note("update", ids, with_labels)
        self.index.update_vectors(ids, X, self.given(labels) if with_labels else None)
        self.model.replace(ids, self.rows(X), labels if with_labels else None)

    def merge(self) -> None:
        n, other = int(self.rng.integers(0, 30)), copy.copy(self.index)
        other.reset()
        X, labels = self.vectors(n), self.labels(n)
        other.add_with_labels(X, self.given(labels))
        first = max(self.model.rows, default=-1) + 1
        self.note("merge", n)
        if self.model.positional:
            self.index.merge_from(other)
        else:
            self.index.merge_from(other, first)
        assert other.ntotal == 0
        self.model.put(list(range(first, first + n)), self.rows(X), labels)

    def reset(self) -> None:
        self.note("reset")
        self.index.reset()
        self.model.rows.clear()

    def copy(self) -> None:
        how = int(self.rng.integers(0, 4))
        self.note("copy", how)
        if how == 0:
            path = self.folder / "index"
            cfe.write_index(self.index, path)
            self.index = cfe.read_index(path)
        else:
            twin: Callable[[Any], Any] = (
                copy.copy,
                copy.deepcopy,
                lambda one: pickle.loads(pickle.dumps(one)),
            )[how - 1]
            before, self.index = self.index, twin(self.index)
            before.reset()

    def prepare(self) -> None:
        if not self.model.rows:
            return
        self.note("prepare")
        self.index.prepare(k=int(self.rng.integers(1, 6)), recall=self.rng.choice([None, 0.9]))

    def refuse(self) -> None:
        """An invalid change leaves everything as it was."""
        X, ids = self.vectors(2), self.model.ids
        self.note("refused changes")
        with pytest.raises((ValueError, KeyError)):
            self.index.add_with_labels(X, self.given(self.labels(2)), [7, 7])
        with pytest.raises((ValueError, KeyError)):
            self.index.update_vectors([10**6], X[:1])
        if self.model.positional:
            with pytest.raises(RuntimeError, match="add_with_ids"):  # as in FAISS
                self.index.add_with_ids(X, [7, 8])
        if ids and not self.model.positional:
            with pytest.raises(ValueError):
                self.index.add_with_labels(X, self.given(self.labels(2)), [ids[0], 10**6])

    # --- searches ---------------------------------------------------------------------------------------------------

    def check(self, found: Any, asked: Asked, k: int, rules: Rules, *, exact: bool) -> None:
        """Exact results equal those of the model. Others are complete rows of what the rules admit, best first."""
        D, I = found
        wanted_D, wanted_I = self.model.search(asked.xq, asked.labels, k, rules, asked.ids)
        if exact:
            assert_array_equal(I, wanted_I)
            assert_array_equal(D, wanted_D)
            return
        assert_array_equal(I >= 0, wanted_I >= 0)
        scores = self.model.scores(asked.xq)
        eligible = self.model.eligible(scores, asked.labels, asked.ids, rules)
        places = {id_: place for place, id_ in enumerate(self.model.ids)}
        for q in range(len(I)):
            ids = I[q, I[q] >= 0].tolist()
            columns = [places[id_] for id_ in ids]
            assert eligible[q, columns].all()
            assert_array_equal(D[q, : len(ids)], self.model.as_results(scores[q, columns]))
            assert ids == sorted(set(ids), key=lambda id_: (-scores[q, places[id_]], id_))

    def search(self) -> None:
        asked = self.new_queries()
        k, rules = int(self.rng.choice([1, 3, 20])), self.rules(asked.xq, per_group=True)
        effort, exact = self.effort()
        labels = asked.labels
        if rules.neighbors == "any" and self.rng.random() < 0.5:
            asked.labels = [None] * len(asked.xq)
        given = None if asked.labels != labels else self.given(labels)
        self.note("search", len(asked.xq), k, *rules.options(), effort)
        found = self.index.search_evidence(asked.X, given, k, **rules.options(), **effort)
        self.check(found, asked, k, rules, exact=exact)
        if given is not None:
            params = cfe.EvidenceParameters(given, **rules.options(), **effort)
            assert_array_equal(self.index.search(asked.X, k, params=params)[1], found[1])

    def search_stored(self) -> None:
        ids = None if self.rng.random() < 0.5 else self.some_ids(30)
        asked = self.stored_queries(self.model.ids if ids is None else ids)
        k, rules = int(self.rng.choice([1, 4, 30])), self.rules(asked.xq, per_group=True)
        effort, exact = self.effort()
        self.note("search_stored", "all" if ids is None else ids, k, *rules.options(), effort)
        found = self.index.search_stored(ids, k, **rules.options(), **effort)
        self.check(found, asked, k, rules, exact=exact)

    def search_certified(self) -> None:
        """Certified rows are exact."""
        asked = self.stored_queries(self.model.ids)
        rules, (effort, exact) = self.rules(asked.xq, per_group=True), self.effort()
        self.note("search_certified", *rules.options(), effort)
        D, I, certified = self.index.search_certified(k=3, **rules.options(), **effort)
        self.check((D, I), asked, 3, rules, exact=exact)
        wanted = self.model.search(asked.xq, asked.labels, 3, rules, asked.ids)
        for found, best in zip((D, I), wanted, strict=True):
            assert_array_equal(found[certified], best[certified])

    def search_range(self) -> None:
        asked = self.new_queries()
        rules, threshold = self.rules(asked.xq), self.threshold(asked.xq)
        self.note("range", len(asked.xq), threshold, *rules.options())
        given, options = self.given(asked.labels), rules.options()
        lims, D, I = self.index.range_search_evidence(asked.X, given, threshold, **options)
        every = max(1, len(self.model.rows))
        all_D, all_I = self.model.search(asked.xq, asked.labels, every, rules)
        sign = -1 if self.metric == "l2" else 1
        limit = np.clip(threshold, *ENDS).astype(np.float32)
        reaches = (sign * all_D >= sign * limit) & (all_I >= 0)
        assert_array_equal(np.diff(lims), reaches.sum(axis=1))
        assert_array_equal(I, all_I[reaches])
        assert_array_equal(D, all_D[reaches])
        params = cfe.EvidenceParameters(given, **options)
        lims, _, I = self.index.range_search(asked.X, threshold, params=params)
        reaches &= all_D != limit  # as in FAISS
        assert_array_equal(np.diff(lims), reaches.sum(axis=1))
        assert_array_equal(I, all_I[reaches])

    def search_per_label(self) -> None:
        asked, k = self.new_queries(), 3
        rules = self.rules(asked.xq, per_label=True)
        self.note("per label", len(asked.xq), *rules.options())
        effort = {"exact": True} if self.rng.random() < 0.5 else {}
        given = self.given(asked.labels)
        D, I = self.index.search_per_label(asked.X, given, k, **effort, **rules.options())
        names = self.model.classes()
        assert D.shape == I.shape == (len(asked.xq), len(names), k)
        for c, name in enumerate(names):
            others = [one for one in names if one != name]
            only = replace(rules, exclude_labels=[others] * len(asked.xq))
            self.check((D[:, c], I[:, c]), asked, k, only, exact=True)

    def pairs(self) -> None:
        expected, k = self.model.pairs(), int(self.rng.choice([1, 5, 40]))
        self.note("pairs", k)
        best = cfe.global_evidence(self.index, k, exact=True)
        columns = best.similarity, best.source, best.target
        for column, values in zip(
            columns, zip(*expected[:k], strict=True) if expected else ([], [], []), strict=True
        ):
            wanted = (
                self.model.as_results(np.array(values)) if column is best.similarity else values
            )
            assert_array_equal(column, np.array(wanted, column.dtype))
        if expected:
            score = expected[int(self.rng.integers(0, len(expected)))][0]
            threshold = float(self.model.as_results(score))
            parts = [*cfe.evidence_pairs(self.index, threshold, block=17)]
            found = {
                pair
                for part in parts
                for pair in zip(part.source.tolist(), part.target.tolist(), strict=True)
            }
            assert found == {(low, high) for reached, low, high in expected if reached >= score}

    def methods_of_faiss(self) -> None:
        """FAISS's own methods answer as those of the stock index that is made of the index."""
        ids = np.array(self.model.ids, np.int64)
        if self.metric == "cosine" or self.index.k_factor is not None or not len(ids):
            return
        self.note("methods of FAISS")
        ours, stock = self.index, self.index.to_stock()
        xq, sel = self.vectors(6), faiss.IDSelectorBatch(ids[::2])
        params: Any = faiss.SearchParameters(sel=sel)
        if ours.has_lists:
            ours.nprobe = stock.nprobe = ours.nlist
            params = faiss.SearchParametersIVF(sel=sel, nprobe=ours.nlist)
        assert (ours.ntotal, ours.d) == (stock.ntotal, stock.d)
        assert ours.metric_type == stock.metric_type
        for index in (ours, faiss.clone_index(ours)):
            for options in ({}, {"params": params}):
                expected = stock.search(xq, 4, **options)
                assert_same_arrays(index.search(xq, 4, **options), expected)
                threshold = float(expected[0][0, 0])
                ranges = [one.range_search(xq, threshold, **options) for one in (index, stock)]
                assert_same_arrays(*ranges)
        D, I = np.empty((6, 4), np.float32), np.empty((6, 4), np.int64)
        found = ours.search(xq, 4, D=D, I=I)
        assert found[0] is D
        assert found[1] is I
        lists = np.empty((6, 2), np.int64)
        assert ours.assign(xq, 2, lists) is lists
        assert_array_equal(lists, stock.assign(xq, 2))
        both = [one.search_and_reconstruct(xq, 3) for one in (ours, stock)]
        assert_same_arrays(both[0], both[1])
        if hasattr(stock, "sa_encode") and type(stock) is not faiss.IndexIDMap2:
            codes = ours.sa_encode(xq)
            assert_array_equal(codes, stock.sa_encode(xq))
            assert_array_equal(ours.sa_decode(codes), stock.sa_decode(codes))
        if np.array_equal(ids, np.arange(len(ids))):
            if ours.has_lists:
                stock.make_direct_map()
            assert_array_equal(ours.reconstruct_n(0, len(ids)), stock.reconstruct_n(0, len(ids)))
        if self.model.positional:
            order = self.rng.permutation(len(ids))
            ours.permute_entries(order)
            self.model.rows = {i: self.model.rows[int(place)] for i, place in enumerate(order)}
        with pytest.raises((RuntimeError, ValueError)):
            ours.reconstruct(10**8)

    def state(self) -> None:
        ids, known = self.model.ids, self.index.members()
        assert self.index.ntotal == len(ids)
        assert known.ids.tolist() == ids
        unknown = None if self.texts else -1
        labels = [unknown if label is None else label for label in self.model.labels(ids)]
        if any(label is not None for label in self.model.labels(ids)):
            assert known.labels.tolist() == labels
            assert self.index.label_names.tolist() == self.model.classes()
        if ids:
            assert_array_equal(self.index.reconstruct_batch(ids), self.model.vectors(ids))

    def step(self) -> None:
        changes = [
            self.add,
            self.add,
            self.relabel,
            self.remove,
            self.update,
            self.merge,
            self.copy,
            self.prepare,
            self.refuse,
            self.methods_of_faiss,
        ]
        if self.rng.random() < 0.1:
            changes.append(self.reset)
        searches = [
            self.search,
            self.search,
            self.search_stored,
            self.search_certified,
            self.search_range,
            self.search_per_label,
            self.pairs,
        ]
        changes[int(self.rng.integers(0, len(changes)))]()
        for _ in range(2):
            searches[int(self.rng.integers(0, len(searches)))]()
        self.state()


def run_sequence(kind: str, seed: int, folder: Path, steps: int = STEPS) -> None:
    """Run one sequence; an error is raised with the operations before it."""
    sequence = Sequence(kind, seed, folder)
    try:
        for _ in range(steps):
            sequence.step()
    except Exception as error:
        operations = "\n  ".join(sequence.log)
        raise AssertionError(
            f"run_sequence({kind!r}, {seed}, folder, {steps}) failed after\n  {operations}"
        ) from error


@pytest.mark.parametrize("seed", range(2 * len(DATA)))
@pytest.mark.parametrize("kind", KINDS)
def test_random_operations(kind: str, seed: int, tmp_path: Path) -> None:
    run_sequence(kind, seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_operations(kind: str, tmp_path: Path) -> None:
    end, seed = time.monotonic() + SLOW_SECONDS / len(KINDS), 1000
    while time.monotonic() < end:
        run_sequence(kind, seed, tmp_path, 40)
        seed += 1
