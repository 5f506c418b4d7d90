"""How many times faster ours is than the best of its peers, on each graph of every page, in one table.

python -m benchmarks.engine.summary
"""

import json
from typing import Any

from benchmarks.common import RESULTS
from benchmarks.engine.page import table, versus

PAGES = (
    "engine_tables",
    "engine_core",
    "engine_core_200k",
    "engine_real",
    "engine_avx2",
    "engine_1569960",
)
PAGE = RESULTS / "engine_summary.md"


def times(result: dict[str, Any], graph: dict[str, Any], mode: str) -> str:
    """Return how many times as fast as the best peer ours is at each recall, and the names of these peers."""
    ratios = [versus(result, graph, mode, target) for target in result["targets"]]
    peers = dict.fromkeys(peer for ratio, peer in ratios if ratio)
    speeds = " / ".join(f"{ratio:.1f}" if ratio else "-" for ratio, _ in ratios)
    return f"{speeds} ({', '.join(map(str, peers))})" if peers else speeds


def rows(name: str) -> list[tuple[str, ...]]:
    result = json.loads((RESULTS / f"{name}.json").read_text())
    level = "AVX-512 VNNI" if "avx512_vnni" in result["environment"]["instruction_sets"] else "AVX2"
    return [
        (
            f"[{graph['graph']}]({name}.md)",
            f"{graph['nodes']:,} x {graph['dimension']}",
            level,
            times(result, graph, "all"),
            times(result, graph, "single"),
        )
        for graph in result["graphs"]
    ]


def page() -> str:
    head = ("graph", "vectors", "processor", "all nodes", "one query")
    return (
        "# The engine against its peers, in one table\n\n"
        "How many times as fast as the best of all peers, which is named, ours finds the top-10 evidence on one "
        "thread, at recall@10 >= 0.95 / 0.99. The pages say how it was measured, where a peer beats us, and what two "
        "threads bring. Written by `python -m benchmarks.engine.summary`.\n\n"
        + table(head, [row for name in PAGES for row in rows(name)])
        + "\n"
    )


def main() -> None:
    PAGE.write_text(page())
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
