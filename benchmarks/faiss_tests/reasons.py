"""Reasons for failures of FAISS's tests with evidence indexes."""

import re
from typing import Any

PASSES = "passes"
BOTH = "fails with stock FAISS"
REFUSED = "uses an operation that evidence indexes refuse, as documented"
CLASS = "requires exactly the stock class"
CRASH = "ends the process"
OTHER = "another difference"
UNEXPLAINED = "no reason known"
VERDICTS = (PASSES, BOTH, REFUSED, CLASS, CRASH, OTHER, UNEXPLAINED)

ABOUT = {
    CRASH: [
        "These tests end the process, or do not return, with evidence indexes only.",
        "",
    ],
}

ERRORS: tuple[tuple[str, str, str], ...] = (
    (
        "reads vectors by position",
        REFUSED,
        "an exact index with ids of its own does not stand in for an `IndexFlatIP`, whose ids are positions",
    ),
    (
        r"index type <class .*> not supported",
        CLASS,
        "takes an index whose class is exactly FAISS's: `faiss.downcast_index(index)` is that, without a copy",
    ),
    (
        "would lose labels",
        REFUSED,
        "an operation of FAISS that would leave rows without labels; the error names ours",
    ),
    (
        "ids must not be in the index yet",
        REFUSED,
        "an id is stored once: two indexes with the same ids are merged with `add_id`",
    ),
)
"""Pattern of an error, verdict, and reason."""

_CODES = "codes are those of vectors, where FAISS by default encodes residuals: their errors differ"
_IDS = "an exact evidence index takes ids itself, without an `IndexIDMap`"
_QUANTIZER = (
    "indexes share a quantizer that another one trains; the index that stands in has its own"
)
_KMEANS = "compared with another stock index trained by the same k-means; the index that stands in has its own k-means"
_RANKING = "lists are ranked by the means of their rows: results at an nprobe depend on the rows that are stored"
_ADDED = "FAISS adds to its shards by methods of C++, without labels; rows are added to each shard instead"
_PANORAMA = (
    "add_search_add_search",
    "batch_boundaries",
    "different_n_levels",
    "exact_match_with_ivf_flat",
    "exact_match_with_ivf_flat_medium",
    "id_selector_batch",
    "id_selector_range",
    "incremental_add",
    "range_search",
    "selector_with_small_dataset",
    "single_level",
    "uneven_dimension_division",
    "update_vectors",
)
TESTS: dict[str, tuple[str, str]] = {
    "TestReconstructBatch.test_exception": (
        OTHER,
        "rows are found by their ids without FAISS's direct map, too",
    ),
    "TestScalarQuantizer_AVX2.test_reconstruct": (OTHER, _CODES),
    "TestClone.test_IVF": (CLASS, "the copy is compared with the class of the stock index"),
    "TestFactoryV2.test_ivf": (CLASS, "the index is compared with the stock class"),
    "TestFactoryTools.test_idmap": (OTHER, _IDS),
    "TestDocumentation.test_io_error": (
        OTHER,
        "methods have their own documentation in place of FAISS's",
    ),
    "TestRangeSearch.test_range_search_id_map": (OTHER, _IDS),
    "TestRemove.test_remove": (
        OTHER,
        "a removal leaves ids that are no positions, so FAISS sees an `IndexIDMap2`",
    ),
    "TestRemove.test_remove_regular": (OTHER, _QUANTIZER),
    "TestIVFFlatDedup.test_dedup": (OTHER, _QUANTIZER),
    "TestBinaryPQ_AVX2.test_encode_to_binary": (OTHER, _QUANTIZER),
    "TestSQByte.test_8bit_direct": (OTHER, _CODES),
    "TestSQFlavors.test_SQ_IP": (OTHER, _CODES),
    "TestSQFlavors.test_SQ_L2": (OTHER, _QUANTIZER),
    "TestIndexFlatPanorama_AVX2.test_remove_ids_then_add": (
        OTHER,
        "ids stay after a removal, where an `IndexFlat` numbers its rows anew",
    ),
    **{f"TestIndexIVFFlatPanorama_AVX2.test_{name}": (OTHER, _KMEANS) for name in _PANORAMA},
    **{
        f"TestSelector_AVX2.test_{name}": (OTHER, _RANKING)
        for name in ("IVFFlat", "IVFFlat_range_sorted", "IVFSQ")
    },
    "TestMerge1_AVX2.test_merge": (OTHER, _QUANTIZER),
    "Shards.test_shards": (REFUSED, _ADDED),
    "Shards.test_shards_ivf_train_add": (REFUSED, _ADDED),
    "TestReferenced.test_count_refs": (
        OTHER,
        "the index that stands in has a quantizer of its own",
    ),
    "TestException.test_exception": (OTHER, _IDS),
    "TestSWIGWrap.test_id_map_at": (OTHER, _IDS),
}
"""Test without its module, verdict, and reason, found by inspection."""


def verdict(test: str, ours: Any, stock: Any) -> tuple[str, str]:
    """Return the verdict on a test, from its outcomes with evidence and with stock indexes, and the reason."""
    if ours.state == "ok":
        return PASSES, ""
    if stock.state != "ok":
        return BOTH, f"{stock.state}: {_short(stock)}"
    known = TESTS.get(test.partition(".")[2])
    if known is not None:
        return known
    for pattern, kind, text in ERRORS:
        if re.search(pattern, ours.message):
            return kind, text
    if ours.state == "not finished":
        return CRASH, ", ".join(ours.made)
    return UNEXPLAINED, f"{ours.state}: {_short(ours)}"


def _short(outcome: Any) -> str:
    lines = [line for line in outcome.message.splitlines() if line.strip()]
    return " ".join(lines)[:120]
