"""Graph neural networks for the nodes of one graph."""

from typing import Any

from cfe_faiss.checks import as_count, as_number
from cfe_faiss.extras import extra
from cfe_faiss.models.rng import seeded

with extra("gnn"):
    import torch
    from torch_geometric.nn.models import GCN


def gcn(data: Any, hidden: int = 16, num_layers: int = 2, dropout: float = 0.5, seed: int = 0) -> torch.nn.Module:
    """Return an untrained graph convolutional network (Kipf & Welling, ICLR 2017), PyG's ``GCN``, on the CPU.

    Parameters
    ----------
    data
        The graph, PyG ``Data``; only the number of features in ``x`` and the largest class in ``y`` are used.
    hidden
        Width of the hidden layers, at least 1; 16 is that of the GCN paper and of NIFTY.
    num_layers
        Number of graph convolutions, at least 1.
    dropout
        Share of hidden values dropped in training, in [0, 1].
    seed
        Of the first weights, at least 0; the global random state stays as it is.

    Returns
    -------
    torch.nn.Module
        Called as ``model(x, edge_index)``, it returns logits, (n, number of classes) float32.

    Raises
    ------
    TypeError, ValueError
        If an argument is of the wrong kind or out of its range.

    Examples
    --------
    >>> from cfe_faiss.datasets import load
    >>> data = load("patients")
    >>> gcn(data)(data.x, data.edge_index).shape
    torch.Size([569, 2])
    """
    with seeded(seed, torch.device("cpu")):
        model: torch.nn.Module = GCN(
            in_channels=data.x.shape[1],
            hidden_channels=as_count("hidden", hidden),
            num_layers=as_count("num_layers", num_layers),
            out_channels=int(data.y.max()) + 1,
            dropout=as_number("dropout", dropout, 0, 1),
        )
    return model
