"""How long is one step of the KS propagation, next to a plain sparse-dense product on the same graph?

The product (torch, CSR, float32) only sums the neighbours; a KS step also takes their cosines. Both read each
neighbour's row once, so the product is what memory allows. Wanted: at most its time at d = 200, and at most 1.3 times
that at d = 18, on one thread and on two. The AmazonProducts shape at full size is compared by full_scale.py.

Both again with weights of the edges: a step then takes a weighted mean, the product has the weights as its values.

Then the same step with nodes in another order (reverse Cuthill-McKee), which keeps neighbours together: how much faster
it is, and what finding the order and moving graph and features takes.

    python benchmarks/ks_vectors.py
"""

import time
import warnings
from collections.abc import Iterator
from dataclasses import replace

import faiss
import numpy as np
import scipy.sparse
import torch
from common import paired_times, save
from numpy.typing import NDArray
from synthetic_graphs import amazon_shape

from cfe_faiss.datasets import load
from cfe_faiss.graph import Graph, as_graph, ks
from cfe_faiss.graph.ks import step_of

NODES = 200_000
PAIRS = 6_000_000  # drawn with repetition; about twice as many directed edges
TAIL = 1.5  # of the Pareto law of the expected degrees
DIMENSIONS = (200, 128, 18)
THREADS = (1, 2)
SEED = 0
REPEATS = 9
ROUNDS_OF_SMALL = 25  # repetitions of each where a step takes milliseconds
WANTED = {"d = 200": 1.0, "d = 18": 1.3}


def power_law_graph() -> Graph:
    rng = np.random.default_rng(SEED)
    shares = np.cumsum(rng.pareto(TAIL, NODES) + 1)
    return as_graph(np.searchsorted(shares, rng.random((2, PAIRS)) * shares[-1]), NODES)


def adjacency(graph: Graph, weights: NDArray[np.float32]) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            # int32 offsets and indices: torch's faster choice.
            torch.from_numpy(graph.indptr.astype(np.int32)),
            torch.from_numpy(graph.indices),
            torch.from_numpy(weights),
            size=(graph.num_nodes, graph.num_nodes),
            check_invariants=True,
        )


def problems() -> Iterator[tuple[str, Graph, NDArray[np.float32]]]:
    rng, graph = np.random.default_rng(SEED), power_law_graph()
    for d in DIMENSIONS:
        yield "power law", graph, rng.random((NODES, d), dtype=np.float32)
    data = amazon_shape(NODES)
    yield data.name, data.graph, data.x
    bail = load("bail")
    yield "bail", as_graph(bail), bail.x.numpy()


def set_threads(threads: int) -> None:
    faiss.omp_set_num_threads(threads)
    torch.set_num_threads(threads)


def compare(graph: Graph, x: NDArray[np.float32]) -> list[dict[str, object]]:
    unit, new_unit, aggregate = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    lengths = ks._unit_rows(x, unit, aggregate)
    new_lengths = np.empty_like(lengths)
    weights = np.random.default_rng(SEED).random(graph.num_edges, dtype=np.float32) + np.float32(
        0.5
    )
    weighted_graph = replace(graph, weights=weights)
    matrix, weighted_matrix = adjacency(graph, np.ones_like(weights)), adjacency(graph, weights)
    dense = torch.from_numpy(x)
    rows: list[dict[str, object]] = []
    for threads in THREADS:
        set_threads(threads)
        plain, weighted = (step_of(one, x.shape[1], 0.5) for one in (graph, weighted_graph))
        medians, times = paired_times(
            {
                "ks_step": lambda step=plain: step(unit, lengths, aggregate, new_unit, new_lengths),
                "spmm": lambda: matrix @ dense,
                "ks_step_weighted": lambda step=weighted: step(
                    unit, lengths, aggregate, new_unit, new_lengths
                ),
                "spmm_weighted": lambda: weighted_matrix @ dense,
            },
            REPEATS if graph.num_edges > 1_000_000 else ROUNDS_OF_SMALL,
        )
        rows.append(
            {
                "threads": threads,
                "median_seconds": medians,
                "seconds": times,
                "ratio_of_medians": medians["ks_step"] / medians["spmm"],
                "ratio_of_minima": min(times["ks_step"]) / min(times["spmm"]),
                "weighted_ratio_of_medians": medians["ks_step_weighted"] / medians["spmm_weighted"],
                "weighted_to_plain_ratio_of_medians": medians["ks_step_weighted"]
                / medians["ks_step"],
            }
        )
        print({key: value for key, value in rows[-1].items() if key != "seconds"}, flush=True)
    return rows


def reorder(graph: Graph, x: NDArray[np.float32]) -> dict[str, object]:
    """Compare a step with one in which nodes are numbered so that neighbours are near each other."""
    set_threads(1)
    start = time.perf_counter()
    ones = np.ones(graph.num_edges, np.float32)
    matrix = scipy.sparse.csr_array(
        (ones, graph.indices, graph.indptr), shape=(graph.num_nodes,) * 2
    )
    order = scipy.sparse.csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=True)
    found = time.perf_counter() - start
    number = np.empty(graph.num_nodes, np.int64)
    number[order] = np.arange(graph.num_nodes)
    targets = np.repeat(number, np.diff(graph.indptr))
    moved_graph = as_graph(
        np.stack([number[graph.indices], targets]), graph.num_nodes, directed=True
    )
    moved_x = x[order]
    moved = time.perf_counter() - start - found

    def steps(graph: Graph, x: NDArray[np.float32]) -> object:
        unit, new_unit, aggregate = np.empty_like(x), np.empty_like(x), np.empty_like(x)
        lengths = ks._unit_rows(x, unit, aggregate)
        step, new_lengths = step_of(graph, x.shape[1], 0.5), np.empty_like(lengths)
        return lambda: step(unit, lengths, aggregate, new_unit, new_lengths)

    medians, _ = paired_times(
        {"given": steps(graph, x), "reordered": steps(moved_graph, moved_x)}, REPEATS
    )
    result = {"median_seconds": medians, "seconds_to_find_order": found, "seconds_to_move": moved}
    print("reordered", result, flush=True)
    return result


def main() -> None:
    runs: list[dict[str, object]] = []
    for name, graph, x in problems():
        shape = {
            "graph": name,
            "nodes": graph.num_nodes,
            "directed_edges": graph.num_edges,
            "dimension": x.shape[1],
        }
        print(shape)
        runs.append({**shape, "turns": compare(graph, x), "reordered": reorder(graph, x)})
    set_threads(max(THREADS))
    result = {
        "question": __doc__.splitlines()[0],
        "wanted": WANTED,
        "power_law": {"seed": SEED, "pareto_tail": TAIL},
        "runs": runs,
    }
    print(f"results in benchmarks/results/{save('ks_vectors', result).name}")


if __name__ == "__main__":
    main()
