"""Graph neural networks for node classification: models of PyG, and an edge function."""

import warnings
from collections.abc import Callable
from typing import Any, Final

from cfe_faiss.base.checks import as_count, as_number, check_known
from cfe_faiss.base.extras import extra
from cfe_faiss.data.call import seeded

with extra("gnn"):
    import torch
    from torch_geometric.nn import MessagePassing
    from torch_geometric.nn.conv.gcn_conv import gcn_norm
    from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE
    from torch_geometric.nn.models.basic_gnn import BasicGNN

NAMES = ("gcn", "gat", "gin", "mpnn", "sage")
"""Names for :func:`build`: the functions of this module."""


def build(name: str, data: Any, seed: int = 0, **options: Any) -> torch.nn.Module:
    """Return an untrained model by its name, one of :data:`NAMES`, on the CPU.

    Parameters
    ----------
    name
        Name of a function of this module.
    data, seed
        As for :func:`gcn`.
    **options
        Other arguments of the function.

    Raises
    ------
    TypeError, ValueError
        If the name is unknown, or an argument has a wrong type or is out of range.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> data = load("patients")
    >>> [build(name, data, hidden=8)(data.x, data.edge_index).shape[1] for name in NAMES]
    [2, 2, 2, 2, 2]
    """
    check_known("name must be one of the models", name, NAMES)
    model: torch.nn.Module = globals()[name](data, seed=seed, **options)
    return model


def gcn(
    data: Any, hidden: int = 16, num_layers: int = 2, dropout: float = 0.5, seed: int = 0
) -> torch.nn.Module:
    """Return an untrained graph convolutional network (Kipf & Welling, 2017), PyG's ``GCN``.

    Parameters
    ----------
    data
        The graph, PyG ``Data``; only the number of features in ``x`` and the largest class in ``y``
        are used.
    hidden
        Width of the hidden layers, at least 1; 16 as in the GCN paper and in NIFTY.
    num_layers
        Number of graph convolutions, at least 1.
    dropout
        Share of hidden values dropped in training, in [0, 1].
    seed
        Seed of the initial weights, at least 0. The global random state does not change.

    Returns
    -------
    torch.nn.Module
        Called as ``model(x, edge_index)``, it returns logits, (n, number of classes) float32.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or is out of range.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> data = load("patients")
    >>> gcn(data)(data.x, data.edge_index).shape
    torch.Size([569, 2])
    """
    return OnMatrix(
        _network(GCN, data, hidden, num_layers, dropout, seed, normalize=False), normalised=True
    )


def gat(
    data: Any,
    hidden: int = 16,
    num_layers: int = 2,
    dropout: float = 0.5,
    seed: int = 0,
    *,
    heads: int = 1,
) -> torch.nn.Module:
    """Return an untrained graph attention network (Veličković et al., 2018), PyG's ``GAT``.

    Parameters
    ----------
    data, hidden, num_layers, dropout, seed
        As for :func:`gcn`. Dropout applies to attention coefficients as well.
    heads
        Number of attention heads, a divisor of ``hidden``. A head takes as much time as a whole
        GCN.

    Returns
    -------
    torch.nn.Module
        As for :func:`gcn`.
    """
    heads = as_count("heads", heads)
    if as_count("hidden", hidden) % heads:
        raise ValueError(f"hidden must be a multiple of heads ({heads}), got {hidden}")
    return _network(GAT, data, hidden, num_layers, dropout, seed, heads=heads)


def gin(
    data: Any, hidden: int = 16, num_layers: int = 2, dropout: float = 0.5, seed: int = 0
) -> torch.nn.Module:
    """Return an untrained graph isomorphism network (Xu et al., ICLR 2019), PyG's ``GIN``.

    Its layers normalise over the nodes (batch normalisation), as in its paper: sums over neighbours
    grow with degree. Parameters, result and errors are as for :func:`gcn`.
    """
    return OnMatrix(_network(GIN, data, hidden, num_layers, dropout, seed, norm="batch_norm"))


def mpnn(
    data: Any, hidden: int = 16, num_layers: int = 2, dropout: float = 0.5, seed: int = 0
) -> torch.nn.Module:
    """Return an untrained message passing network with a learnt edge function, :class:`MPNN`.

    Parameters, result and errors are as for :func:`gcn`.
    """
    return _network(MPNN, data, hidden, num_layers, dropout, seed)


def sage(
    data: Any, hidden: int = 16, num_layers: int = 2, dropout: float = 0.5, seed: int = 0
) -> torch.nn.Module:
    """Return an untrained GraphSAGE (Hamilton et al., NeurIPS 2017) with mean aggregation.

    Parameters, result and errors are as for :func:`gcn`.
    """
    return OnMatrix(_network(GraphSAGE, data, hidden, num_layers, dropout, seed))


def _network(
    kind: Callable[..., torch.nn.Module],
    data: Any,
    hidden: int,
    num_layers: int,
    dropout: float,
    seed: int,
    **options: Any,
) -> torch.nn.Module:
    with seeded(seed, torch.device("cpu")):
        return kind(
            in_channels=data.x.shape[1],
            hidden_channels=as_count("hidden", hidden),
            num_layers=as_count("num_layers", num_layers),
            out_channels=int(data.y.max()) + 1,
            dropout=as_number("dropout", dropout, 0, 1),
            **options,
        )


# --- networks on the graph as a sparse matrix, and message passing with a learnt edge function ----


class OnMatrix(torch.nn.Module):
    """PyG network that converts its ``edge_index`` to a sparse matrix.

    A product with a sparse matrix takes a fraction of the time of gathering and scattering one
    vector per edge. The matrix of the last ``edge_index`` is cached until another one comes or the
    same one is modified. Explainers mask single edges, so they get the ``edge_index``.

    Parameters
    ----------
    network
        Called as ``network(x, edges)`` with an ``edge_index``, or with a matrix whose rows are
        targets.
    normalised
        Whether to add self-loops and the weights of GCN, 1 / sqrt(degree * degree), for layers that
        do not do so.
    """

    def __init__(self, network: torch.nn.Module, *, normalised: bool = False) -> None:
        super().__init__()
        self.network = network
        self.normalised = normalised
        # Edges, their state, and their matrix
        self._cached: tuple[torch.Tensor, tuple[Any, ...], torch.Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cached": None}

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        """Return the output of the network for features (n, d) and edges (2, E), int64."""
        is_explained = any(
            part.explain for part in self.modules() if isinstance(part, MessagePassing)
        )
        keeps_edges = is_explained or edge_index.layout != torch.strided
        graph = self._weigh(edge_index, x) if keeps_edges else (self._matrix(edge_index, x),)
        scores: torch.Tensor = self.network(x, *graph)
        return scores

    def _weigh(
        self, edge_index: torch.Tensor, x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if not self.normalised:
            return edge_index, None
        edges, weights = gcn_norm(edge_index, None, len(x), dtype=x.dtype)
        return edges, weights

    def _matrix(self, edge_index: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        # A tensor of inference mode has no version, so changes of it would go unnoticed.
        state = None if edge_index.is_inference() else (edge_index._version, len(x), x.dtype)
        if self._cached is not None:
            edges, state_of_edges, matrix = self._cached
            if edges is edge_index and state_of_edges == state:
                return matrix
        _check(edge_index, len(x))
        matrix = _rows_of_targets(*self._weigh(edge_index, x), x)
        self._cached = None if state is None else (edge_index, state, matrix)
        return matrix


def _check(edge_index: torch.Tensor, n: int) -> None:
    # Sparse products do not check column indices.
    if edge_index.ndim != 2 or len(edge_index) != 2 or edge_index.is_floating_point():
        raise ValueError(
            f"edge_index must be integers of shape (2, E), got {edge_index.dtype} "
            f"{tuple(edge_index.shape)}"
        )
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < n:
        raise ValueError(
            f"edge_index must lie in 0..{n - 1}, got "
            f"{int(edge_index.min())}..{int(edge_index.max())}"
        )


def _rows_of_targets(
    edge_index: torch.Tensor, weights: torch.Tensor | None, x: torch.Tensor
) -> torch.Tensor:
    """Return the (n, n) CSR matrix with one entry in row v per edge to v.

    Parallel edges stay separate.
    """
    source, target = edge_index
    order = target.argsort(stable=True)
    starts = torch.zeros(len(x) + 1, dtype=torch.int64, device=target.device)
    starts[1:] = torch.bincount(target, minlength=len(x)).cumsum(0)
    weights = (
        torch.ones(len(source), dtype=x.dtype, device=x.device)
        if weights is None
        else weights[order]
    )
    with warnings.catch_warnings():
        # PyG's layers only multiply with it.
        warnings.filterwarnings(
            "ignore", message="Sparse CSR tensor support is in beta", category=UserWarning
        )
        return torch.sparse_csr_tensor(
            starts, source[order], weights, size=(len(x), len(x)), check_invariants=False
        )


class EdgeFunction(MessagePassing):  # type: ignore[misc]
    """One round of message passing in the form of Gilmer et al. (ICML 2017), equations 1 and 2.

    A message is a perceptron of both ends, ``m_vu = relu(A h_v + B h_u + b)``; the update is
    linear, ``h'_v = C h_v + D mean_u(m_vu)``. D is the second layer of the message: it is linear,
    so it may follow the mean. The paper sums messages. The mean keeps nodes with thousands of
    neighbours in range.
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(aggr="mean")
        self.of_target = torch.nn.Linear(in_channels, out_channels)
        self.of_source = torch.nn.Linear(in_channels, out_channels, bias=False)
        self.of_itself = torch.nn.Linear(in_channels, out_channels)
        self.of_messages = torch.nn.Linear(out_channels, out_channels, bias=False)

    def reset_parameters(self) -> None:
        """Draw new weights."""
        super().reset_parameters()
        for part in self.children():
            if isinstance(part, torch.nn.Linear):
                part.reset_parameters()

    def forward(self, x: torch.Tensor, edge_index: Any) -> torch.Tensor:
        """Return the nodes' new states, (n, out_channels)."""
        messages = self.propagate(edge_index, target=self.of_target(x), source=self.of_source(x))
        out: torch.Tensor = self.of_itself(x) + self.of_messages(messages)
        return out

    def message(self, target_i: torch.Tensor, source_j: torch.Tensor) -> torch.Tensor:
        """Return a message per edge, (E, out_channels)."""
        # In place, because memory traffic of one float per edge and channel dominates the cost.
        return target_i.add_(source_j).relu_()


class MPNN(BasicGNN):  # type: ignore[misc]
    """Stack of :class:`EdgeFunction` layers with activation and dropout, as in PyG's models."""

    supports_edge_weight: Final[bool] = False
    supports_edge_attr: Final[bool] = False

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> MessagePassing:
        """Return one layer."""
        return EdgeFunction(in_channels, out_channels)
