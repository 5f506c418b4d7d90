"""Torch's random numbers, from a seed and without a trace."""

from collections.abc import Iterator
from contextlib import contextmanager

from cfe_faiss.checks import as_count
from cfe_faiss.extras import extra

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
