"""Does it pay to number nodes so that neighbours lie in the same block, before KS vectors are made by blocks?

A graph of AmazonProducts' shape, whose nodes are numbered at random, is given other numbers: by reverse Cuthill-McKee,
and by METIS, which cuts it into as many parts as there are blocks. For each: how long it takes to find the order and to
move edges and features, how long a KS step takes on one thread, and how many rows of other blocks a block reads, which
is what crosses a network.

    python benchmarks/partition.py                   # needs pymetis
    python benchmarks/partition.py --nodes 200000
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import pymetis
import scipy.sparse
from common import paired_times, save
from numpy.typing import NDArray
from synthetic_graphs import amazon_shape

from cfe_faiss.graph import Graph, as_graph, ks
from cfe_faiss.graph.ks import step_of as native_step_of

NODES, D, BLOCKS, LAYERS = 1_569_960, 64, 16, 3
SEED, REPEATS = 0, 3

Order = NDArray[np.int64]


def renumbered(graph: Graph, order: Order) -> Graph:
    """Return the graph whose node i is the node ``order[i]`` of the one given."""
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    targets = np.repeat(number, np.diff(graph.indptr))
    return as_graph(np.stack([number[graph.indices], targets]), graph.num_nodes, directed=True)


def cuthill_mckee(graph: Graph) -> Order:
    ones = np.ones(graph.num_edges, np.int8)
    matrix = scipy.sparse.csr_array(
        (ones, graph.indices, graph.indptr), shape=(graph.num_nodes,) * 2
    )
    order: Order = scipy.sparse.csgraph.reverse_cuthill_mckee(matrix, symmetric_mode=True).astype(
        np.int64
    )
    return order


def metis(graph: Graph) -> Order:
    adjacency = pymetis.CSRAdjacency(graph.indptr, graph.indices)
    _, parts = pymetis.part_graph(BLOCKS, adjacency=adjacency)
    return np.argsort(parts, kind="stable")


def rows_read(graph: Graph) -> float:
    """Return how many rows of other blocks a block reads, on average, as a share of all rows."""
    size, shares = -(-graph.num_nodes // BLOCKS), []
    for first in range(0, graph.num_nodes, size):
        stop = min(first + size, graph.num_nodes)
        read = np.zeros(graph.num_nodes, bool)
        read[graph.indices[graph.indptr[first] : graph.indptr[stop]]] = True
        read[first:stop] = False
        shares.append(read.mean())
    return float(np.mean(shares))


def step_of(graph: Graph, x: NDArray[np.float32]) -> Callable[[], object]:
    unit, new_unit, aggregate = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    lengths = ks._unit_rows(x, unit, aggregate)
    step, new_lengths = native_step_of(graph, x.shape[1], 0.5), np.empty_like(lengths)
    return lambda: step(unit, lengths, aggregate, new_unit, new_lengths)


def measured(
    graph: Graph, x: NDArray[np.float32], find: Callable[[Graph], Order]
) -> dict[str, Any]:
    """Return what an order costs, and a step with it next to one without."""
    start = time.perf_counter(), time.process_time()
    order = find(graph)
    found = time.perf_counter() - start[0], time.process_time() - start[1]
    moved_graph, moved_x = renumbered(graph, order), x[order]
    moved = time.perf_counter() - start[0] - found[0]
    medians, times = paired_times(
        {"given": step_of(graph, x), "reordered": step_of(moved_graph, moved_x)}, REPEATS
    )
    saved = LAYERS * (medians["given"] - medians["reordered"])
    return {
        "seconds_to_find_order": found[0],
        "cpu_seconds_to_find_order": found[1],
        "seconds_to_move": moved,
        "median_seconds_of_step": medians,
        "seconds_of_step": times,
        "seconds_saved_in_all_steps": saved,
        "rows_of_other_blocks_read": rows_read(moved_graph),
        "pays": saved > found[0] + moved,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=NODES)
    nodes = parser.parse_args().nodes
    faiss.omp_set_num_threads(1)
    data = amazon_shape(nodes, seed=SEED)
    shuffled = np.random.default_rng(SEED).permutation(nodes)
    graph, x = renumbered(data.graph, shuffled), np.ascontiguousarray(data.x[shuffled, :D])
    edges = data.graph.num_edges
    del data
    orders: dict[str, Callable[[Graph], Order]] = {
        "reverse Cuthill-McKee": cuthill_mckee,
        f"METIS, {BLOCKS} parts": metis,
    }
    runs: dict[str, Any] = {}
    for name, find in orders.items():
        runs[name] = measured(graph, x, find)
        print(name, runs[name], flush=True)
        shape = {"nodes": nodes, "directed_edges": edges, "d": D, "blocks": BLOCKS, "steps": LAYERS}
        at_random = {"rows_of_other_blocks_read": rows_read(graph)}
        question = __doc__.splitlines()[0]
        save(
            f"partition_{nodes}",
            {"question": question, **shape, "at random": at_random, "orders": runs},
        )


if __name__ == "__main__":
    main()
