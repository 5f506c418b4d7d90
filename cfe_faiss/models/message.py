"""Message passing with a learnable edge function."""

from typing import Any, Final

from cfe_faiss.base.extras import extra

with extra("gnn"):
    import torch
    from torch_geometric.nn import MessagePassing
    from torch_geometric.nn.models.basic_gnn import BasicGNN


class EdgeFunction(MessagePassing):  # type: ignore[misc]
    """One round of message passing in the form of Gilmer et al. (ICML 2017), equations 1 and 2.

    A message is a perceptron of both its ends, ``m_vu = relu(A h_v + B h_u + b)``; the update is linear,
    ``h'_v = C h_v + D mean_u(m_vu)``. D stands for the message's second layer: as it is linear, it may follow the mean.
    The paper sums; the mean keeps nodes of thousands of neighbours in range.
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
        updated: torch.Tensor = self.of_itself(x) + self.of_messages(messages)
        return updated

    def message(self, target_i: torch.Tensor, source_j: torch.Tensor) -> torch.Tensor:
        """Return a message per edge, (E, out_channels)."""
        # In place: with a float per edge and channel, memory traffic is what a round costs.
        return target_i.add_(source_j).relu_()


class MPNN(BasicGNN):  # type: ignore[misc]
    """A stack of :class:`EdgeFunction`, with activation and dropout between them, as PyG's other models are built."""

    supports_edge_weight: Final[bool] = False
    supports_edge_attr: Final[bool] = False

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> MessagePassing:
        """Return one layer."""
        return EdgeFunction(in_channels, out_channels)
