"""Graph neural networks for node classification: models of PyG, and message passing with a learnt edge function."""

from collections.abc import Callable
from typing import Any

from cfe_faiss.base.checks import as_count, as_number, check_known
from cfe_faiss.base.extras import extra
from cfe_faiss.models.call import seeded
from cfe_faiss.models.matrix import MPNN, OnMatrix

with extra("gnn"):
    import torch
    from torch_geometric.nn.models import GAT, GCN, GIN, GraphSAGE

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


def gcn(data: Any, hidden: int = 16, num_layers: int = 2, dropout: float = 0.5, seed: int = 0) -> torch.nn.Module:
    """Return an untrained graph convolutional network (Kipf & Welling, ICLR 2017), PyG's ``GCN``, on the CPU.

    Parameters
    ----------
    data
        The graph, PyG ``Data``; only the number of features in ``x`` and the largest class in ``y`` are used.
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
    return OnMatrix(_network(GCN, data, hidden, num_layers, dropout, seed, normalize=False), normalised=True)


def gat(
    data: Any, hidden: int = 16, num_layers: int = 2, dropout: float = 0.5, seed: int = 0, *, heads: int = 1
) -> torch.nn.Module:
    """Return an untrained graph attention network (Veličković et al., ICLR 2018), PyG's ``GAT``, on the CPU.

    Parameters
    ----------
    data, hidden, num_layers, dropout, seed
        As for :func:`gcn`. Dropout applies to attention coefficients as well.
    heads
        Number of attention heads, a divisor of ``hidden``. A head takes as much time as a whole GCN.

    Returns
    -------
    torch.nn.Module
        As for :func:`gcn`.
    """
    heads = as_count("heads", heads)
    if as_count("hidden", hidden) % heads:
        raise ValueError(f"hidden must be a multiple of heads ({heads}), got {hidden}")
    return _network(GAT, data, hidden, num_layers, dropout, seed, heads=heads)


def gin(data: Any, hidden: int = 16, num_layers: int = 2, dropout: float = 0.5, seed: int = 0) -> torch.nn.Module:
    """Return an untrained graph isomorphism network (Xu et al., ICLR 2019), PyG's ``GIN``, on the CPU.

    Its layers normalise over the nodes (batch normalisation), as in its paper: sums over neighbours grow with degree.
    Parameters, result and errors are as for :func:`gcn`.
    """
    return OnMatrix(_network(GIN, data, hidden, num_layers, dropout, seed, norm="batch_norm"))


def mpnn(data: Any, hidden: int = 16, num_layers: int = 2, dropout: float = 0.5, seed: int = 0) -> torch.nn.Module:
    """Return an untrained message passing network with a learnt edge function, :class:`MPNN`, on the CPU.

    Parameters, result and errors are as for :func:`gcn`.
    """
    return _network(MPNN, data, hidden, num_layers, dropout, seed)


def sage(data: Any, hidden: int = 16, num_layers: int = 2, dropout: float = 0.5, seed: int = 0) -> torch.nn.Module:
    """Return an untrained GraphSAGE (Hamilton et al., NeurIPS 2017), PyG's with mean aggregation, on the CPU.

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
