"""The graph as a sparse matrix, for layers that sum over neighbours."""

import warnings
from typing import Any, NamedTuple

from cfe_faiss.base.extras import extra

with extra("gnn"):
    import torch
    from torch_geometric.nn import MessagePassing
    from torch_geometric.nn.conv.gcn_conv import gcn_norm


class OnMatrix(torch.nn.Module):
    """A PyG network that is called with an ``edge_index`` and handed a sparse matrix.

    A product with a sparse matrix takes a fraction of the time of gathering and scattering a vector per edge. The
    matrix of the ``edge_index`` that came last is kept; it is made again when another one comes, or the same one was
    written to. An explainer, which masks single edges, has the edges themselves.

    Parameters
    ----------
    network
        Called as ``network(x, edges)``, where edges are an ``edge_index`` or a matrix whose row is the target.
    normalised
        Whether edges have the weights of GCN (self-loops; 1 / sqrt(degree * degree)), for layers that do not weigh
        them on their own.
    """

    def __init__(self, network: torch.nn.Module, *, normalised: bool = False) -> None:
        super().__init__()
        self.network = network
        self.normalised = normalised
        self._kept: _Kept | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return what the network returns for features (n, d) and edges (2, E), int64."""
        graph: tuple[Any, ...]
        if edge_index.layout != torch.strided or self._is_explained():
            graph = self._weighted(edge_index, x)
        else:
            graph = (self._matrix(edge_index, x),)
        output: torch.Tensor = self.network(x, *graph)
        return output

    def _is_explained(self) -> bool:
        return any(part.explain for part in self.modules() if isinstance(part, MessagePassing))

    def _weighted(self, edge_index: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        if not self.normalised:
            return edge_index, None
        edges, weights = gcn_norm(edge_index, None, len(x), dtype=x.dtype)
        return edges, weights

    def _matrix(self, edge_index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        kept = self._kept
        if kept is not None and kept.edge_index is edge_index and kept.state == _state(edge_index, x):
            return kept.matrix
        _check(edge_index, len(x))
        matrix = _rows_of_targets(*self._weighted(edge_index, x), x)
        # A tensor that was made in inference mode does not count what is written to it.
        self._kept = None if edge_index.is_inference() else _Kept(edge_index, _state(edge_index, x), matrix)
        return matrix


class _Kept(NamedTuple):
    edge_index: torch.Tensor
    state: tuple[Any, ...]
    matrix: torch.Tensor


def _state(edge_index: torch.Tensor, x: torch.Tensor) -> tuple[Any, ...]:
    return edge_index._version, len(x), x.dtype


def _check(edge_index: torch.Tensor, n: int) -> None:
    # Products with a sparse matrix do not look where a column points.
    if edge_index.ndim != 2 or len(edge_index) != 2 or edge_index.is_floating_point():
        raise ValueError(
            f"edge_index must be integers of shape (2, E), got {edge_index.dtype} {tuple(edge_index.shape)}"
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < n:
        raise ValueError(f"edge_index must lie in 0..{n - 1}, got {int(edge_index.min())}..{int(edge_index.max())}")


def _rows_of_targets(edge_index: torch.Tensor, weights: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """Return the (n, n) CSR matrix whose row v holds an entry per edge that ends in v; parallel edges stay apart."""
    source, target = edge_index
    order = target.argsort(stable=True)
    starts = torch.zeros(len(x) + 1, dtype=torch.int64, device=target.device)
    starts[1:] = torch.bincount(target, minlength=len(x)).cumsum(0)
    weights = torch.ones(len(source), dtype=x.dtype, device=x.device) if weights is None else weights[order]
    with warnings.catch_warnings():
        # All that PyG's layers do with it is to multiply.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta", category=UserWarning)
        return torch.sparse_csr_tensor(starts, source[order], weights, size=(len(x), len(x)), check_invariants=False)
