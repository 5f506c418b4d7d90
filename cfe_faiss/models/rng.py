"""Torch's random numbers, from a seed and without a trace."""

from collections.abc import Iterator
from contextlib import contextmanager

from cfe_faiss.base.checks import as_count
from cfe_faiss.base.extras import extra

with extra("gnn"):
    import torch


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draw from ``seed`` inside, on the CPU and on ``device``; outside, the random state is what it was before."""
    seed = as_count("seed", seed, 0)
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        # Not torch.manual_seed: it would also reach the devices whose state is not restored.
        torch.default_generator.manual_seed(seed)
        if gpus:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def random_state(device: torch.device) -> list[torch.Tensor]:
    """Return the state of the random numbers that are drawn on the CPU and on ``device``."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


def set_random_state(device: torch.device, states: list[torch.Tensor]) -> None:
    """Go on with the random numbers from what :func:`random_state` returned."""
    torch.set_rng_state(states[0])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states[1], device)
