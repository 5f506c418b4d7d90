"""Any sequence of changes gives the results of a new index: a state machine compared with a dictionary."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule
from numpy.testing import assert_array_equal
from reference import Stored, assert_same_arrays, evidence_of_rows, kept_rows, unit

import cfe_faiss as cfe
from cfe_faiss.index.searching import EvidenceIndex

D = 5
KINDS = {
    "ivf1": ",Flat",
    "ivf3": "x3,Flat",
    "fp16": "x2,SQfp16",
    "sq8": "x2,SQ8",
    "pq1": ",PQ5,RFlat",
    "pq2": "x2,PQ1,RFlat",
}
GRID = np.random.default_rng(0).integers(-2, 3, (64, D)).astype(np.float32)


class Changes(RuleBasedStateMachine):
    ids = Bundle("ids")

    @initialize(kind=st.sampled_from(["flat", "ivf1", "ivf3", "fp16", "sq8", "pq1", "pq2"]))
    def build(self, kind: str) -> None:
        self.model: dict[int, tuple[int, int]] = {}
        self.index: EvidenceIndex = cfe.IndexEvidenceIDMap2(D)
        self.kept = unit(GRID)
        if kind != "flat":
            self.index = cfe.index_factory(D, f"EvidenceIVF6{KINDS[kind]}")
            self.index.train(np.tile(GRID, (4, 1)))
            self.index.nprobe = 18
        if kind in ("fp16", "sq8"):
            self.kept = kept_rows(self.index, self.kept)

    @rule(
        target=ids,
        new=st.dictionaries(
            st.integers(0, 200), st.tuples(st.integers(0, 63), st.integers(0, 5)), max_size=12
        ),
        labelled=st.booleans(),
    )
    def add(self, new: dict[int, tuple[int, int]], labelled: bool) -> list[int]:
        new = {i: value for i, value in new.items() if i not in self.model}
        X, labels = GRID[[row for row, _ in new.values()]], [label for _, label in new.values()]
        if labelled:
            self.index.add_with_labels(X.reshape(-1, D), labels, list(new))
        else:
            self.index.add_with_ids(X.reshape(-1, D), list(new))
            new = {i: (row, -1) for i, (row, _) in new.items()}
        self.model |= new
        return list(new)

    @rule(some=ids)
    def remove(self, some: list[int]) -> None:
        stored = [i for i in some if i in self.model]
        assert self.index.remove_ids(np.array(some, np.int64)) == len(stored)
        for i in stored:
            del self.model[i]

    @rule(some=ids, shift=st.integers(0, 5))
    def relabel(self, some: list[int], shift: int) -> None:
        some = [i for i in some if i in self.model]
        labels = [(i + shift) % 4 for i in some]
        self.index.relabel(labels, some)
        for i, label in zip(some, labels, strict=True):
            self.model[i] = (self.model[i][0], label)

    @rule(some=ids, shift=st.integers(1, 63), labelled=st.booleans())
    def update(self, some: list[int], shift: int, labelled: bool) -> None:
        some = [i for i in some if i in self.model][::-1]
        for i in some:
            row, label = self.model[i]
            self.model[i] = ((row + shift) % 64, (i + shift) % 5 - 1 if labelled else label)
        X, labels = GRID[[self.model[i][0] for i in some]], [self.model[i][1] for i in some]
        self.index.update_vectors(some, X.reshape(-1, D), labels if labelled else None)

    @rule(shift=st.integers(0, 3))
    def relabel_all(self, shift: int) -> None:
        labels = [(i * 7 + shift) % 3 for i in sorted(self.model)]
        self.index.relabel(labels)
        for i, label in zip(sorted(self.model), labels, strict=True):
            self.model[i] = (self.model[i][0], label)

    @rule()
    def reset(self) -> None:
        self.index.reset()
        self.model = {}

    @invariant()
    def results_are_those_of_the_model(self) -> None:
        if not hasattr(self, "index"):
            return
        ids = sorted(self.model)
        rows, labels = [self.model[i][0] for i in ids], [self.model[i][1] for i in ids]
        kept = self.kept[rows].reshape(-1, D)
        stored = Stored(kept, np.array(labels), np.array(ids, np.int64), GRID[:6], np.arange(6), 4)
        expected = evidence_of_rows(stored)
        assert_same_arrays(self.index.search_evidence(GRID[:6], np.arange(6), 4), expected)
        assert self.index.ntotal == len(ids)
        assert_array_equal(self.index.members().ids, ids)
        assert_array_equal(self.index.members().labels, labels)


TestChanges = Changes.TestCase
TestChanges.settings = settings(
    max_examples=2 * settings.default.max_examples, stateful_step_count=25
)
