"""Weights and states of training in files, which are read without running anything that they hold."""

import hashlib
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

from cfe_faiss.base.extras import extra
from cfe_faiss.files.new_file import new_file
from cfe_faiss.files.outputs import MARK, check_outputs

with extra("gnn"):
    import torch


def save(model: torch.nn.Module, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write the weights of ``model`` to a file, all of it or none.

    Parameters
    ----------
    model
        Any module.
    path
        Path of the file. One that this function wrote is replaced.
    overwrite
        Whether to replace a file that this package has not written.

    Raises
    ------
    OSError
        If the file cannot be written.
    ValueError
        If the file is mapped into memory; or if this package has not written it, and ``overwrite`` is False.
    """
    check_outputs([Path(path)], overwrite=overwrite)
    write(path, model.state_dict(), overwrite=overwrite)


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


def write(path: str | os.PathLike[str], content: Any, *, overwrite: bool) -> None:
    """Write tensors and plain values; readers of the file find either the old content or the new."""
    with new_file(Path(path).resolve(), overwrite=overwrite) as file:
        torch.save(content, file)
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = MARK.encode()


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
