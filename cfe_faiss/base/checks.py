"""Types of arrays, and checks of arguments.

Each check returns an array or a number, or its error names the argument.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cfe_faiss import _native

Array: TypeAlias = NDArray[Any]
Bools: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]
Doubles: TypeAlias = NDArray[np.float64]
Int32s: TypeAlias = NDArray[np.int32]
Ints: TypeAlias = NDArray[np.int64]

UNKNOWN = -1
"""Label of a stored vector without a class. It is never evidence."""
SEVERAL = -2
"""Label in place of several, as of a group of queries or of the rows of a list."""

_MAX_LABEL = np.iinfo(np.int32).max
# A union of types in a call takes as long as the other checks of a number.
_BOOLEANS = bool, np.bool_
_NO_NUMBERS = *_BOOLEANS, str, bytes


class InputWarning(UserWarning):
    """Input that is valid, but probably a mistake; the message names the remedy."""


class InputNote(InputWarning):
    """Fact about the input that may need no remedy."""


class UnknownClassWarning(InputWarning):
    """Rows without a known class."""


class OneSidedClassWarning(InputWarning):
    """Class of many predictions that is no true class, or of many true classes never predicted."""


class LeakWarning(InputWarning):
    """Column that determines the classes; ``column`` is its name."""

    def __init__(self, text: str, column: str) -> None:
        super().__init__(text)
        self.column = column


def to_host(values: Any) -> Any:
    """Return a tensor in host memory, without its gradient; return other values unchanged."""
    if not hasattr(values, "detach"):
        return values
    values = values.detach().cpu()
    # NumPy lacks that type
    return values.float() if str(getattr(values, "dtype", "")) == "torch.bfloat16" else values


def as_array(name: str, values: Any) -> Array:
    """Return ``values`` as an array of real numbers, uncopied if possible.

    It takes arrays, sequences, and tensors on any device. Masked entries become NaN.
    """
    try:
        if isinstance(values, np.ma.MaskedArray) and values.mask.any():
            values = np.ma.filled(values.astype(np.float64), np.nan)
        array = np.asarray(to_host(values))
    except ValueError as error:
        raise ValueError(
            f"{name} must be a rectangular array of numbers, got {type(values).__name__}"
        ) from error
    except TypeError as error:  # a tensor of a type that NumPy does not have
        raise TypeError(
            f"{name} must be an array of real numbers, got {type(values).__name__}: {error}"
        ) from error
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} must be an array of real numbers, got dtype {array.dtype}")
    return array


def check_shape(name: str, array: Any, shape: tuple[int | str, ...], of: str = "") -> None:
    """Raise ValueError unless an array has a shape, in which a letter stands for any length.

    ``of`` says in the error what the array holds.

    Examples
    --------
    >>> check_shape("edge_index", np.ones((3, 5)), (2, "E"), "two ends of each edge")
    Traceback (most recent call last):
    ValueError: edge_index must have shape (2, E), two ends of each edge, got (3, 5)
    """
    actual = tuple(array.shape)
    if len(actual) != len(shape) or any(
        isinstance(expected, int) and expected != length
        for expected, length in zip(shape, actual, strict=True)
    ):
        shown = ", ".join(map(str, shape)) + "," * (len(shape) == 1)
        raise ValueError(f"{name} must have shape ({shown}){of and f', {of}'}, got {actual}")


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT, a masked entry of NumPy, or the NA of pandas."""
    is_null = value is None or value is np.ma.masked or type(value).__name__ == "NAType"
    return is_null or bool(value != value)


def is_sparse(values: Any) -> bool:
    """Return whether ``values`` is a SciPy sparse array, without an import of scipy.sparse."""
    sparse: Any = sys.modules.get("scipy.sparse")
    return sparse is not None and bool(sparse.issparse(values))


def as_dense(name: str, values: Any) -> Array:
    """Return an array, tensor or sparse matrix of real numbers as a dense array."""
    for method in ("to_dense", "toarray"):  # of a tensor, of a SciPy matrix
        if hasattr(values, method):
            return as_array(name, getattr(values, method)())
    return as_array(name, values)


def as_matrix(name: str, values: Any, d: int | None = None) -> Floats:
    """Return ``values`` as a finite, C-contiguous float32 array (n, d), uncopied if possible.

    Raises
    ------
    TypeError
        If the values are not real numbers.
    ValueError
        If the shape is not (n, d), or a value is NaN, infinite or too large for float32.
    """
    matrix = _as_float32(name, values, d)
    _check_finite(name, matrix, _native.first_not_finite(matrix))
    return matrix


def _as_float32(name: str, values: Any, d: int | None) -> Floats:
    array = as_array(name, values)
    expected = f"(n, {'d' if d is None else d})"
    if array.ndim != 2 or (d is not None and array.shape[1] != d) or array.shape[1] == 0:
        raise ValueError(f"{name} must have shape {expected}, got {array.shape}")
    if array.dtype == np.float32:
        return np.ascontiguousarray(array)
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)


def _check_finite(name: str, matrix: Floats, row: int) -> None:
    """Raise ValueError for the first row that is not finite; -1 means that there is none."""
    if row >= 0:
        raise ValueError(
            f"{name} must be finite in float32, got {matrix[row].tolist()[:8]} in row {row}"
        )


def as_unit_rows(name: str, values: Any, d: int | None = None) -> Floats:
    """Return an L2-normalised float32 copy of ``values``.

    Zero rows stay zero, unit rows keep their bits.
    """
    matrix = _as_float32(name, values, d)
    units = np.empty_like(matrix)
    _check_finite(name, matrix, _native.unit_rows(matrix, units))
    return units


def is_label(label: int) -> bool:
    """Return whether :func:`as_labels` accepts a label."""
    return 0 <= label < _MAX_LABEL


def as_labels(name: str, values: Any, n: int, *, unknown: bool = False) -> Int32s:
    """Return class labels, (n,) int32, each in 0..2**31-2 (with ``unknown`` also -1).

    Raises
    ------
    TypeError
        If the labels are not integers.
    ValueError
        If the shape is not (n,), or a label is outside the range.
    """
    array = as_array(name, values)
    if array.dtype.kind == "f" and array.size > 0:
        raise TypeError(f"{name} must be integers, got dtype {array.dtype}")
    if array.shape != (n,):
        raise ValueError(f"{name} must have shape ({n},), one label per vector, got {array.shape}")
    lowest = UNKNOWN if unknown else 0
    # A NumPy reduction takes 1 us, too long for a single query.
    ends = array.tolist() if n < 2 else [array.min(), array.max()]
    if n and not lowest <= ends[0] <= ends[-1] < _MAX_LABEL:
        wrong = (array < lowest) | (array >= _MAX_LABEL)
        raise ValueError(
            f"{name} must lie in {lowest}..{_MAX_LABEL - 1}, got {array[np.argmax(wrong)]}"
        )
    return array.astype(np.int32)


def as_names(name: str, values: Any) -> tuple[str, ...]:
    """Return names as texts without repetitions.

    TypeError if ``values`` is no sequence, or a single text.
    """
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise TypeError(f"{name} must be a sequence of names, got {values!r}")
    return tuple(dict.fromkeys(map(str, values)))


def require(holds: Any, problem: str) -> None:
    """Raise ValueError with a problem, unless a condition holds."""
    if not holds:
        raise ValueError(problem)


def check_type(expectation: str, value: Any, kind: Any) -> None:
    """Raise TypeError with the violated expectation unless a value is of a type, or of a union."""
    if not isinstance(value, kind):
        raise TypeError(f"{expectation}, got {type(value).__name__}")


def check_distinct(expectation: str, names: Sequence[Any]) -> None:
    """Raise ValueError with the violated expectation if a name or a number occurs twice."""
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise ValueError(f"{expectation}, got {twice!r} more than once")


def did_you_mean(value: str, known: Iterable[str]) -> str:
    """Return "; did you mean NAME?" with the most similar known name, or "" if none is similar.

    Examples
    --------
    >>> did_you_mean("Sex", ["sex", "age"]), did_you_mean("height", ["sex", "age"])
    ("; did you mean 'sex'?", '')
    """
    from difflib import get_close_matches  # only errors need it

    by_lower = {name.strip().lower(): name for name in known}
    nearest = get_close_matches(value.strip().lower(), by_lower, 1)
    return f"; did you mean {by_lower[nearest[0]]!r}?" if nearest else ""


def check_known(expectation: str, value: Any, known: Collection[Any]) -> None:
    """Raise ValueError with the expectation and the most similar known values.

    Examples
    --------
    >>> check_known("name must name columns", "Sex", ["sex", "age"])
    Traceback (most recent call last):
    ValueError: name must name columns (sex, age), got 'Sex'; did you mean 'sex'?
    """
    if value not in known:
        texts = [str(one) for one in known]
        raise ValueError(
            f"{expectation} ({', '.join(texts[:20])}), got "
            f"{value!r}{did_you_mean(str(value), texts)}"
        )


def as_count(name: str, value: Any, lowest: int = 1) -> int:
    """Return ``value`` as an int of at least ``lowest``.

    Raises
    ------
    TypeError
        If it is not an integer.
    ValueError
        If it is too small.
    """
    if isinstance(value, _BOOLEANS) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    number = int(value.__index__())
    if number < lowest:
        raise ValueError(f"{name} must be at least {lowest}, got {number}")
    return number


def as_number(name: str, value: Any, low: float, high: float, *, is_open: bool = False) -> float:
    """Return ``value`` as a float in [low, high], or (low, high] if the range ``is_open``.

    Raises
    ------
    TypeError
        If it is not a real number.
    ValueError
        If it is outside of the range, or NaN.
    """
    if isinstance(value, _NO_NUMBERS) or not hasattr(type(value), "__float__"):
        raise TypeError(f"{name} must be a number, got {value!r}")
    number = float(value)
    if not low <= number <= high or (is_open and number == low):
        allowed = (
            f"be above {low:g} and at most {high:g}" if is_open else f"lie in [{low:g}, {high:g}]"
        )
        raise ValueError(f"{name} must {allowed}, got {number!r}")
    return number
