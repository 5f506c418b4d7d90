"""Validation of the footer of an index file, so that searches only see valid data."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from cfe_faiss.base.arrays import Array
from cfe_faiss.base.checks import UNKNOWN
from cfe_faiss.files.faiss_payload import DamageError, Payload
from cfe_faiss.rows.label_keys import table_from
from cfe_faiss.rows.metric import LONGEST, METRICS
from cfe_faiss.rows.snapshot import Snapshot, check_references

ALIGNMENT = 64
_MAX_LABEL = np.iinfo(np.int32).max

_FLAT = "EvidenceFlat", "EvidenceIDMap2"
_KEYS = {"label_keys": "|u1", "label_ends": "<i8", "label_codes": "<i4", "label_kinds": "|u1"}
_CALIBRATIONS = {"calibrations": "<f8", "calibration_starts": "<i8", "calibration_classes": "<f8"}
_LISTS = {"labels": "<i4", **_KEYS, "list_checksums": "<u4", **_CALIBRATIONS}
_LISTS |= dict.fromkeys(("centroids", "route_means", "route_entry_means", "region_means"), "<f4")
_LISTS |= dict.fromkeys(("references", "route_labels"), "<i4")
_LISTS |= dict.fromkeys(("route_filled", "route_entry_filled"), "|u1")
_LISTS |= dict.fromkeys(("reference_starts", "route_starts", "route_lists", "region_starts", "region_lists"), "<i8")
_METRIC: dict[str, type] = {"metric": str, "longest": float}
_SEARCH = _METRIC | {"theta": float, "weighted": bool, "complete": bool, "routing": str, "choice": str}
_CHOICES = ("", *(f"{batch}/{single}" for batch in ("float", "byte") for single in ("float", "byte", "mixed")))
_KINDS: dict[str, tuple[dict[str, str], dict[str, type]]] = {
    **dict.fromkeys(_FLAT, ({"labels": "<i4", **_KEYS}, _METRIC)),
    "EvidenceIVF": (_LISTS, _SEARCH),
    "EvidenceIVFScalarQuantizer": (_LISTS, _SEARCH),
    "EvidenceIVFPQ": (_LISTS | {"vectors": "<f4"}, _SEARCH | {"k_factor": float}),
}
"""Dtype of each section, and type of each parameter, by kind of index."""
SINCE_VERSION = {
    "list_checksums": 3,
    **dict.fromkeys(("choice", *_CALIBRATIONS), 4),
    **dict.fromkeys(_KEYS, 5),
    **dict.fromkeys(_METRIC, 6),
    "label_kinds": 7,
}
"""Sections and parameters that files of earlier versions do not have."""
ON_OPENING = (*_KEYS, "centroids", "reference_starts", "list_checksums", *_CALIBRATIONS)
"""Sections that are checked when a file is opened; the others grow with the vectors, and wait until they are used."""
VECTORS = ("vectors",)
"""Sections that are checked with the payload's own vectors: in a mapped file not at all."""

Arrays = Mapping[str, Array]


def check_header(header: dict[str, Any], end: int) -> None:
    """Raise DamageError unless the header is complete for its version and all sections end before byte ``end``."""
    kind = _taken(header, "kind", str)
    if kind not in _KINDS:
        raise DamageError(f"it holds an index of unknown kind {kind!r}")
    payload = _taken(header, "payload", dict)
    for name in ("size", "crc32", "structure_crc32"):
        _natural(payload, name)
    dtypes, parameters = (_since(header["version"], items) for items in _KINDS[kind])
    _check_parameters(_taken(header, "parameters", dict), parameters)
    sections = _taken(header, "sections", list)
    names = [_taken(section, "name", str) for section in sections]
    if sorted(names) != sorted(dtypes):
        raise DamageError(f"it has the sections {names}, not {[*dtypes]}")
    place = payload["size"]
    for name, section in zip(names, sections, strict=True):
        place = _check_section(section, name, dtypes[name], place)
    if place > end:
        raise DamageError(f"its sections end at byte {place}, beyond its header at {end}")


def _since(version: int, items: Mapping[str, Any]) -> dict[str, Any]:
    """Return the items that files of this version have."""
    return {name: kind for name, kind in items.items() if version >= SINCE_VERSION.get(name, 0)}


def _taken(mapping: Any, name: str, kind: type) -> Any:
    value = mapping.get(name) if isinstance(mapping, dict) else None
    if type(value) is not kind:
        raise DamageError(f"{name!r} in its header must be of type {kind.__name__}, got {value!r:.80}")
    return value


def _natural(mapping: Any, name: str) -> int:
    value: int = _taken(mapping, name, int)
    if value < 0:
        raise DamageError(f"{name!r} in its header must not be negative, got {value}")
    return value


def _check_parameters(parameters: dict[str, Any], kinds: Mapping[str, type]) -> None:
    if parameters.keys() != kinds.keys():
        raise DamageError(f"it has the parameters {sorted(parameters)}, not {sorted(kinds)}")
    for name, kind in kinds.items():
        _taken(parameters, name, kind)
    if "theta" in kinds and not 1e-3 <= parameters["theta"] <= math.pi / 2:
        raise DamageError(f"its theta is {parameters['theta']}, not in [0.001, pi/2]")
    if "k_factor" in kinds and not 1 <= parameters["k_factor"] <= 1e9:
        raise DamageError(f"its k_factor is {parameters['k_factor']}, not in [1, 1e9]")
    if "routing" in kinds and parameters["routing"] not in ("evidence", "nearest"):
        raise DamageError(f"its routing is {parameters['routing']!r}, not 'evidence' or 'nearest'")
    if parameters.get("metric", "cosine") not in METRICS or not 0 <= parameters.get("longest", 0.0) <= LONGEST:
        raise DamageError(f"its metric is {parameters['metric']!r}, of vectors up to length {parameters['longest']}")
    if parameters.get("choice", "") not in _CHOICES:
        raise DamageError(f"its choice is {parameters['choice']!r}, not one of {_CHOICES}")


def _check_section(section: dict[str, Any], name: str, dtype: str, place: int) -> int:
    """Check that a section starts at byte ``place`` or later, and return its end."""
    shape: list[int] = _taken(section, "shape", list)
    offset = _natural(section, "offset")
    _natural(section, "crc32")
    if _taken(section, "dtype", str) != dtype:
        raise DamageError(f"its section {name!r} has dtype {section['dtype']!r:.80}, not {dtype!r}")
    if len(shape) > 3 or not all(type(length) is int and 0 <= length < 1 << 62 for length in shape):
        raise DamageError(f"its section {name!r} has shape {shape!r:.80}")
    if offset < place or offset % ALIGNMENT:
        raise DamageError(f"its section {name!r} begins at byte {offset}")
    return offset + math.prod(shape) * np.dtype(dtype).itemsize


def check_shapes(kind: str, payload: Payload, header: dict[str, Any]) -> None:
    """Raise DamageError unless the shapes of all sections match the payload."""
    got = {section["name"]: tuple(section["shape"]) for section in header["sections"]}
    sizes = {name: (*shape, 0)[0] for name, shape in got.items()}
    n, d, nlist = payload.ntotal, payload.d, len(payload.sizes)
    codes, ends = sizes.get("label_codes", 0), sizes.get("label_ends", 0)
    wanted: dict[str, tuple[int, ...]] = {"labels": (n,), "vectors": (n, d), "list_checksums": (nlist, 2)}
    wanted["label_codes"] = (codes,)
    wanted["label_ends"] = wanted["label_kinds"] = (codes if ends else 0,)
    wanted["label_keys"] = (sizes.get("label_keys", 0) if ends else 8 * codes,)
    if kind not in _FLAT:
        more, lists, classes = sizes["centroids"], sizes["route_means"], sizes["route_labels"]
        entries, clusters = sizes["route_lists"], sizes["region_means"]
        wanted["centroids"], wanted["references"] = (more, nlist, d), (more, n)
        wanted["reference_starts"] = (more * nlist + 1,)
        routed = header["parameters"]["routing"] == "evidence" and n
        length = d + bool(routed and header["parameters"].get("metric", "cosine") != "cosine")
        wanted["route_means"], wanted["route_filled"] = ((more + 1) * nlist if routed else 0, length), (lists,)
        wanted["route_labels"], wanted["route_starts"] = (classes,), (classes + 1,)
        wanted["route_lists"] = wanted["route_entry_filled"] = (entries,)
        wanted["route_entry_means"] = (entries, length)
        wanted["region_means"], wanted["region_starts"] = (clusters, d), (clusters + 1,)
        wanted["region_lists"] = (lists if clusters else 0,)
        made, of_classes = sizes.get("calibrations", 0), sizes.get("calibration_classes", 0)
        wanted["calibrations"], wanted["calibration_classes"] = (made, 4), (of_classes, 3)
        wanted["calibration_starts"] = (made + 1,)
    for name, shape in got.items():
        if shape != wanted[name]:
            raise DamageError(f"its section {name!r} has shape {shape}, not {wanted[name]}")


def check_lists(payload: Payload, arrays: Arrays) -> None:
    """Raise DamageError unless centroids and list boundaries of supplementary partitions are valid; O(lists)."""
    if "centroids" not in arrays:
        return
    if not np.isfinite(arrays["centroids"]).all():
        raise DamageError("its centroids are not finite")
    starts = arrays["reference_starts"]
    borders = starts[:: max(1, len(payload.sizes))]  # an untrained index may have no lists
    if (starts[1:] < starts[:-1]).any() or (borders != np.arange(len(borders)) * payload.ntotal).any():
        raise DamageError("the lists of its supplementary partitions do not hold each vector once")


def check_calibrations(arrays: Arrays, nlist: int) -> None:
    """Raise DamageError unless the calibrations are valid for an index with ``nlist`` lists in all partitions."""
    if "calibrations" not in arrays:
        return
    made, starts, classes = (arrays[name] for name in _CALIBRATIONS)
    k, recall, batched, other = made.T
    label, nprobe, reached = classes.T
    lists = np.concatenate([other, nprobe])
    whole = np.concatenate([k, lists, label])
    valid = (
        starts[0] == 0
        and starts[-1] == len(classes)
        and (starts[1:] >= starts[:-1]).all()
        and np.isfinite(whole).all()
        and (whole == np.floor(whole)).all()
        and (k >= 1).all()
        and (k <= 1 << 62).all()
        and ((recall > 0) & (recall < 1)).all()
        and ((batched == 0) | (batched == 1)).all()
        and ((lists >= 1) & (lists <= nlist)).all()
        and ((label >= 0) & (label < _MAX_LABEL)).all()
        and ((reached >= 0) & (reached <= 1)).all()
    )
    if not valid:
        raise DamageError("its calibrations are not valid")


def check_label_keys(arrays: Arrays) -> None:
    """Raise DamageError unless the labels that codes stand for are valid."""
    with as_damage():
        table_from(arrays)


def check_row_sections(payload: Payload, arrays: Arrays) -> None:
    """Raise DamageError unless labels and references are valid; O(partitions * n)."""
    labels, n = arrays["labels"], payload.ntotal
    if n and (labels.min() < UNKNOWN or labels.max() >= _MAX_LABEL):
        raise DamageError(f"its labels lie in {labels.min()}..{labels.max()}, not in {UNKNOWN}..{_MAX_LABEL - 1}")
    codes = arrays.get("label_codes", labels[:0])
    if len(codes) and not np.isin(np.unique(labels), np.append(codes, UNKNOWN)).all():
        raise DamageError("its labels have no names")
    falls = np.flatnonzero(labels[1:] < labels[:-1]) + 1
    if "centroids" in arrays and not np.isin(falls, np.cumsum(payload.sizes)).all():
        raise DamageError("its labels are not in ascending order within each list")
    with as_damage():
        check_references(arrays.get("references", np.empty((0, n), np.int32)), n)


def check_routes(arrays: Arrays) -> None:
    """Raise DamageError unless the class centroids are valid; O(lists + entries)."""
    if "route_means" not in arrays:
        return
    starts, labels, lists = arrays["route_starts"], arrays["route_labels"], arrays["route_lists"]
    flags = np.concatenate([arrays["route_filled"], arrays["route_entry_filled"]])
    in_order = (starts[1:] >= starts[:-1]).all() and (labels[1:] > labels[:-1]).all()
    if not in_order or starts[0] != 0 or starts[-1] != len(lists) or (flags > 1).any():
        raise DamageError("its routes are not in order")
    if len(lists) and (lists.min() < 0 or lists.max() >= len(arrays["route_means"])):
        raise DamageError("its routes lead to lists that it does not have")
    borders, members = arrays["region_starts"], arrays["region_lists"]
    if borders[0] != 0 or borders[-1] != len(members) or (borders[1:] < borders[:-1]).any():
        raise DamageError("its clusters are not in order")
    if not np.array_equal(np.sort(members), np.arange(len(members))):
        raise DamageError("its clusters do not hold each list once")


def check_rows(storage: Snapshot) -> None:
    """Raise DamageError unless all ids are distinct and valid, and all vectors as of the metric; O(n (d + log n))."""
    with as_damage():
        storage.check()


@contextmanager
def as_damage() -> Iterator[None]:
    """Convert a ValueError into a DamageError."""
    try:
        yield
    except ValueError as error:
        raise DamageError(str(error)) from error
