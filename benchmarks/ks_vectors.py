"""How long is one step of the KS propagation, next to a plain sparse-dense product on the same graph?

The product (torch, CSR, float32) only sums the neighbours; a KS step also takes their cosines. Both read each
neighbour's row once, so the product is what memory allows. Wanted: at most 1.25 times its time at d = 200; and the same
of all KS vectors with three steps, which also normalise and sum, against three products. The AmazonProducts shape is
compared by full_scale.py.

    python benchmarks/ks_vectors.py
"""

import warnings

import numpy as np
import torch
from common import paired_times, save
from numpy.typing import NDArray

from cfe_faiss import kernel, parallel
from cfe_faiss.graph import Graph, as_graph
from cfe_faiss.propagation import step_in_memory

NODES = 200_000
PAIRS = 6_000_000  # drawn with repetition; about twice as many directed edges
TAIL = 1.5  # of the Pareto law of the expected degrees
DIMENSIONS = (200, 128, 18)
LAYERS = 3
SEED = 0
REPEATS = 9
WANTED = 1.25


def power_law_graph() -> Graph:
    rng = np.random.default_rng(SEED)
    shares = np.cumsum(rng.pareto(TAIL, NODES) + 1)
    return as_graph(np.searchsorted(shares, rng.random((2, PAIRS)) * shares[-1]), NODES)


def adjacency(graph: Graph) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            # int32 offsets and indices: torch's faster choice.
            torch.from_numpy(graph.indptr.astype(np.int32)),
            torch.from_numpy(graph.indices),
            torch.ones(graph.num_edges),
            size=(graph.num_nodes, graph.num_nodes),
            check_invariants=True,
        )


def compare(graph: Graph, matrix: torch.Tensor, x: NDArray[np.float32]) -> dict[str, object]:
    unit, new_unit, aggregate = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    norms = kernel._unit_rows(x, unit, aggregate)
    dense, out = torch.from_numpy(x), np.empty_like(x)
    medians, times = paired_times(
        {
            "ks_step": lambda: step_in_memory(graph, unit, norms, 0.5, aggregate, new_unit, None),
            "spmm": lambda: matrix @ dense,
            "ks_vectors": lambda: kernel.ks_vectors(x, graph, LAYERS, out=out),
        },
        REPEATS,
    )
    ratio = medians["ks_step"] / medians["spmm"]
    print(
        f"d = {x.shape[1]}: one step {medians['ks_step']:.3f} s, product {medians['spmm']:.3f} s, ratio {ratio:.2f}; "
        f"ks_vectors with {LAYERS} layers {medians['ks_vectors']:.3f} s"
    )
    return {
        "dimension": x.shape[1],
        "median_seconds": medians,
        "seconds": times,
        "ratio_of_medians": ratio,
        "ratio_of_minima": min(times["ks_step"]) / min(times["spmm"]),
        "ks_vectors_per_layer_to_spmm": medians["ks_vectors"] / LAYERS / medians["spmm"],
    }


def main() -> None:
    torch.set_num_threads(parallel.num_threads())
    graph = power_law_graph()
    matrix = adjacency(graph)
    degrees = np.diff(graph.indptr)
    print(f"{graph.num_nodes:,} nodes, {graph.num_edges:,} directed edges, largest degree {degrees.max():,}")
    rng = np.random.default_rng(SEED)
    result = {
        "question": __doc__.splitlines()[0],
        "wanted": f"ratio of at most {WANTED} at d = 200",
        "graph": {
            "nodes": graph.num_nodes,
            "directed_edges": graph.num_edges,
            "largest_degree": int(degrees.max()),
            "seed": SEED,
            "pareto_tail": TAIL,
        },
        "layers_of_ks_vectors": LAYERS,
        "repeats": REPEATS,
        "runs": [compare(graph, matrix, rng.random((NODES, d), dtype=np.float32)) for d in DIMENSIONS],
    }
    print(f"results in benchmarks/results/{save('ks_vectors', result).name}")


if __name__ == "__main__":
    main()
