"""Tables and results of the audits, and names of their array types."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cfe_faiss.base.extras import extra
from cfe_faiss.base.text import summary
from cfe_faiss.finder.results import table_html

if TYPE_CHECKING:
    import pandas as pd

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Frame: TypeAlias = "pd.DataFrame"


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class TableResult:
    """Result of an audit: a table, and the limits of its numbers in sentences."""

    table: Frame
    limits: tuple[str, ...] = ()

    __repr__ = summary
    _repr_html_ = table_html

    def __len__(self) -> int:
        return len(self.table)

    def to_frame(self) -> Frame:
        """Return a copy of the table."""
        return self.table.copy()


def data_frame(data: Any, columns: Iterable[str] | None = None) -> Frame:
    """Return a DataFrame of columns or of rows. ImportError names the extra if pandas is missing."""
    with extra("audit"):
        import pandas as pd
    return pd.DataFrame(data, columns=None if columns is None else [*columns])


def stack(blocks: Iterable[Any], columns: Iterable[str] = ()) -> Frame:
    """Return one DataFrame of blocks of columns, or of DataFrames, in order; without blocks an empty one."""
    frames = [data_frame(block) for block in blocks]
    if not frames:
        return data_frame([], columns)
    with extra("audit"):
        import pandas as pd
    return pd.concat(frames, ignore_index=True)


def share(part: ArrayLike, whole: ArrayLike) -> Floats:
    """Return ``part / whole``; NaN where ``whole`` is 0. Both have the same shape, or broadcast."""
    a, b = np.broadcast_arrays(part, whole)
    shares: Floats = np.divide(a, b, out=np.full(b.shape, np.nan), where=b > 0)
    return shares
