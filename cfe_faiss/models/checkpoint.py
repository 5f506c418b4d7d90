"""Weights and states of training in files, which are read without running anything that they hold."""

import contextlib
import hashlib
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

from cfe_faiss.extras import extra

with extra("gnn"):
    import torch


def save(model: torch.nn.Module, path: str | os.PathLike[str]) -> None:
    """Write the weights of ``model`` to a file, all of it or none.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    write(path, model.state_dict())


def load(model: torch.nn.Module, path: str | os.PathLike[str]) -> None:
    """Read what :func:`save` wrote into a model of the same kind, on whatever device that is.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If it is no such file, or holds the weights of another kind of model; the model is then as it was.
    """
    weights = read(path)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    found = {name: tuple(getattr(value, "shape", ())) for name, value in weights.items()}
    if found != shapes:
        name, expected = next(iter(shapes.items() - found.items()), (None, None))
        detail = f"{name} {found.get(name)}, expected {expected}" if name else f"also {sorted(found.keys() - shapes)}"
        raise ValueError(f"{Path(path)} must hold the weights of a model of this kind, got {detail}")
    model.load_state_dict(weights)


def write(path: str | os.PathLike[str], content: Any) -> None:
    """Write tensors and plain values; whoever reads the file finds either the old content or the new."""
    path = Path(path)
    file = tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False)  # noqa: SIM115
    try:
        with file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(file.name).unlink()
        raise


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what :func:`write` wrote, onto the CPU; ValueError for a file of another kind."""
    with Path(path).open("rb") as file:
        try:
            content = torch.load(file, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError, OSError) as error:
            raise ValueError(f"{Path(path)} must be a file that this package saved: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{Path(path)} must be a file that this package saved, got {type(content).__name__}")
    return content


def fingerprint(model: torch.nn.Module, data: Any, settings: dict[str, Any]) -> str:
    """Return a digest of all that a training's result follows from: weights, graph and settings."""
    digest = hashlib.sha256()
    parts = dict(model.state_dict())
    parts |= {name: data[name] for name in ("x", "edge_index", "y", "train_mask", "val_mask", "test_mask")}
    for name, value in (parts | settings).items():
        if isinstance(value, torch.Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        else:
            digest.update(f"{name} {value!r}".encode())
    return digest.hexdigest()
