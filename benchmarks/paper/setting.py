"""What the experiments share: settings, trained models, results that are kept as they come, and where all of it lies.

Every part of an experiment (one graph, one model, one seed) is written to ``cache/`` as soon as it is there, so a rerun
goes on where the last one stopped. A part whose settings have changed is computed anew; after a change of the code
itself remove ``cache/``. Models are trained once per graph, kind and seed, for all experiments.
"""

import os
import sys
from pathlib import Path

# Idle OpenMP threads should sleep, not spin: torch and FAISS bring one set of threads each.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.append(str(Path(__file__).parents[1]))  # for benchmarks/common.py

import io
import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple

import fair_models
import numpy as np
import torch
from common import environment
from numpy.typing import NDArray
from sources import REAL, graph

import cfe_faiss as cfe
from cfe_faiss import models

HERE = Path(__file__).parent
LAYERS, ALPHA = 3, 0.5
PARTITIONS, CLUSTERS, THETA = 50, 10, math.pi / 3
K = 10
KNOWN = 200
# FairGNN's defaults in this package were chosen on test nodes of seeds 0 to 3 of Bail, so no experiment uses those.
SEEDS = range(4, 9)
# Learning rate and epochs at most. After 200 epochs at 0.01 Bail and Facebook are far from converged; these values
# are as good or better in a third of the time. German needs 200 at 0.01: after fewer, some models name one class only.
TRAINING = {
    "cora": (0.02, 80),
    "german": (0.01, 200),
    "pubmed": (0.02, 80),
    "bail": (0.05, 80),
    "facebook": (0.05, 80),
}
METRICS = ("accuracy", "f1", "auc", "parity_difference", "opportunity_difference")
GNNS = ("gcn", "gat", "gin", "mpnn", "sage")
TITLES = {
    "german": "German",
    "bail": "Bail",
    "cora": "Cora",
    "pubmed": "PubMed",
    "facebook": "Facebook",
    "amazon": "AmazonProducts",
}


@dataclass(frozen=True)
class Bench:
    """One reproduction: full or quick, and the folder that it writes to."""

    quick: bool
    folder: Path
    amazon: Path | None = None
    spent: dict[str, float] = field(default_factory=dict, compare=False)
    """Seconds of each experiment: of all its parts, also where these come from the cache."""

    @property
    def seeds(self) -> Sequence[int]:
        """Of the split, the first weights, the training and the clustering; statistics are over these."""
        return range(2) if self.quick else SEEDS

    def training(self, name: str) -> dict[str, Any]:
        """Return learning rate and epochs for a graph."""
        lr, epochs = TRAINING[name]
        return {"lr": lr, "epochs": 8 if self.quick else epochs}

    def few(self, values: Sequence[Any], count: int = 2) -> list[Any]:
        """Return all values, or in the quick form the first few."""
        return list(values[:count] if self.quick else values)

    def part(
        self, experiment: str, name: str, settings: dict[str, Any], compute: Callable[[], Any]
    ) -> Any:
        """Return one part of an experiment, from the cache where it is there with these settings."""
        path = self.folder / "cache" / experiment / f"{name}.json"
        wanted = json.loads(json.dumps({"quick": self.quick, **settings}))
        kept = json.loads(path.read_text()) if path.exists() else None
        if kept is None or kept["settings"] != wanted:
            start = time.perf_counter()
            value = json.loads(json.dumps(compute()))
            kept = {"settings": wanted, "value": value, "seconds": time.perf_counter() - start}
            print(f"  {experiment} {name}: {kept['seconds']:.1f} s", flush=True)
            write(path, json.dumps(kept))
        self.spent[experiment] = self.spent.get(experiment, 0) + kept["seconds"]
        return kept["value"]

    def parts(
        self,
        experiment: str,
        keys: Iterable[tuple[Any, ...]],
        settings: dict[str, Any],
        compute: Callable[..., Any],
    ) -> list[Any]:
        """Return the part of each key and seed; ``compute`` gets these. The first of a key is a graph."""
        return [
            self.part(
                experiment,
                "-".join(map(str, (*key, seed))),
                {"L": LAYERS, "alpha": ALPHA, **settings, **self.training(key[0])},
                partial(compute, self, *key, seed),
            )
            for key in keys
            for seed in self.seeds
        ]


def titled(name: str, source: str) -> str:
    """Return the title of a graph for a figure: with its source unless that is the real one."""
    return TITLES[name] if source == REAL else f"{TITLES[name]} ({source})"


class Trained(NamedTuple):
    """A trained model on one split of a graph, and what it predicts."""

    data: Any
    source: str
    model: torch.nn.Module
    labels: NDArray[np.int64]
    metrics: dict[str, float | None]

    @property
    def test(self) -> NDArray[np.int64]:
        """The nodes of V_test."""
        return np.flatnonzero(self.data.test_mask.numpy())


def write(path: Path, text: str) -> None:
    """Write a file so that it is there complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(text)
    scratch.replace(path)


@lru_cache(maxsize=1)
def vectors(bench: Bench, name: str) -> NDArray[np.float32]:
    """Return the KS vectors of all nodes of a graph: they see the whole of it, whatever the split."""
    data, _ = graph(bench.quick, name, 0)
    return cfe.ks_vectors(data.x, data.edge_index, num_layers=LAYERS, alpha=ALPHA)


@lru_cache(maxsize=8)
def trained(bench: Bench, name: str, kind: str, seed: int) -> Trained:
    """Return a model of one of the five kinds, or ``fairgnn``; trained here unless the cache has it."""
    data, source = graph(bench.quick, name, seed)
    model = (
        fair_models.fairgnn(data, seed=seed)
        if kind == "fairgnn"
        else models.build(kind, data, seed=seed)
    )
    path = bench.folder / "cache" / "models" / f"{name}-{kind}-{seed}.pt"
    how = bench.training(name) if kind != "fairgnn" else {"epochs": 8} if bench.quick else {}
    wanted = {
        "source": source,
        **how,
        "weights": {k: list(v.shape) for k, v in state(model).items()},
    }
    kept = torch.load(path) if path.exists() else None
    if kept is None or kept["wanted"] != wanted:
        start = time.perf_counter()
        if kind == "fairgnn":
            fair_models.train_fair(
                model, data, known=20 if bench.quick else KNOWN, seed=seed, **how
            )
        else:
            models.train(model, data, seed=seed, **how)
        measures = models.evaluate(model, data, data.test_mask)
        judged = {key: getattr(measures, key) for key in METRICS}
        metrics = {key: value if math.isfinite(value) else None for key, value in judged.items()}
        metrics["majority"] = float(data.y[data.test_mask].bincount().max() / data.test_mask.sum())
        metrics["seconds"] = time.perf_counter() - start
        kept = {"wanted": wanted, "state": state(model), "metrics": metrics}
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}")
        torch.save(kept, scratch)
        scratch.replace(path)
        print(
            f"  trained {name}-{kind}-{seed}: {metrics['seconds']:.1f} s, accuracy {metrics['accuracy']:.3f}",
            flush=True,
        )
    model.load_state_dict(kept["state"])
    model.eval()
    return Trained(data, source, model, models.predict(model, data), kept["metrics"])


def state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def flat_index(
    bench: Bench, name: str, run: Trained, nodes: NDArray[np.int64] | None = None
) -> cfe.IndexEvidenceIDMap2:
    """Return the exact index (LocalCE-B) over the test nodes, or over the given ones."""
    nodes = run.test if nodes is None else nodes
    X = vectors(bench, name)
    index = cfe.IndexEvidenceIDMap2(X.shape[1])
    index.add_with_labels(X[nodes], run.labels[nodes], ids=nodes)
    return index


def empty_indexes(d: int, n: int, seed: int) -> dict[str, Any]:
    """Return the indexes that are compared, untrained: the paper's two, its two ablations, and ours."""
    settings = {"partitions": PARTITIONS, "clusters": CLUSTERS, "theta": THETA}
    indexes = {
        "LocalCE-B": cfe.IndexEvidenceIDMap2(d),
        "LocalCE-I": cfe.IndexEvidenceIVF.paper(d, **settings),
        "w/o WC": cfe.IndexEvidenceIVF.paper(d, **settings, weighted=False),
        "w/o SP": cfe.IndexEvidenceIVF.paper(d, **settings, supplementary=False),
        "ours": cfe.IndexEvidenceIVF(d, nlist=2 * math.isqrt(n)),
    }
    for index in indexes.values():
        if isinstance(index, cfe.IndexEvidenceIVF):
            index.cp.seed = 1 + seed
    return indexes


@contextmanager
def one_thread() -> Any:
    """Measure as the paper does, on a single core: NumPy's BLAS has threads of its own beside FAISS's."""
    import faiss
    from threadpoolctl import threadpool_limits

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        faiss.omp_set_num_threads(before)


def run(module: Any, bench: Bench) -> None:
    """Measure, and write the JSON result, the table and the figure of one experiment."""
    start = time.perf_counter()
    print(f"{module.NAME}: {module.__doc__.splitlines()[0]}", flush=True)
    result = {
        "experiment": module.NAME,
        "quick": bench.quick,
        "seeds": list(bench.seeds),
        **module.measure(bench),
    }
    name = module.NAME
    result["seconds"] = round(bench.spent.get(name, 0), 1)
    # A line each, without idle digits: files stay small, and can be compared.
    rows = ",\n".join(json.dumps(shortened(row), separators=(",", ":")) for row in result["rows"])
    rest = json.dumps({"environment": environment(), **result, "rows": None}, indent=1)
    text = rest.replace('"rows": null', f'"rows": [\n{rows}\n]', 1)
    write(bench.folder / "results" / f"{name}.json", text + "\n")
    write(bench.folder / "results" / f"{name}.md", module.table(result) + "\n")
    figure = module.draw(result)
    if figure is not None:
        save_figure(figure, bench.folder / "figures" / f"{name}.png")
    print(f"{module.table(result)}\n{name}: {time.perf_counter() - start:.1f} s in all", flush=True)


def shortened(value: Any) -> Any:
    """Return a JSON value with its numbers to six significant digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: shortened(inner) for key, inner in value.items()}
    return [shortened(inner) for inner in value] if isinstance(value, list | tuple) else value


def save_figure(figure: Any, path: Path, dpi: int = 90) -> None:
    """Write a PNG with a palette of 128 colours: a third of the size, and no difference to the eye."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi, bbox_inches="tight")
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.open(drawn).convert("RGB").quantize(128).save(path, optimize=True)
