"""A public benchmark of exclusion: the nearest rows outside the query's group, by our index and by every peer.

    python -m benchmarks.exclusion.run small --shared
    CFE_DATA=... python -m benchmarks.exclusion.run full
    python -m benchmarks.exclusion.run short --graphs groups-50-zipf-100-64-20000 --threads 1 2

``pip install -c constraints.txt ".[benchmarks]"`` from a clone installs all but pyglass. Peers
that are not installed are left out and named. Data sets are generated (:mod:`benchmarks.exclusion.data`), or they are
real graphs, which need PyTorch and the folder CFE_DATA.

A peer is a :class:`benchmarks.engine.peers.Peer`: how to build, save, load and search an index. To add one, add it to
``PEERS`` there. It is tuned and timed as :mod:`benchmarks.engine.run` says, which tells about the options. All peers
get the same threads and the same budget.
"""

from functools import partial

from benchmarks.engine.graphs import REAL
from benchmarks.engine.run import Benchmark
from benchmarks.engine.run import main as run
from benchmarks.exclusion import page

SHAPES = (
    "0-equal-2",
    "100-equal-2",
    "0-zipf-100",
    "50-zipf-100",
    "100-equal-100",
    "0-equal-half",
    "100-equal-half",
)
EXCLUSION = Benchmark(
    name="exclusion",
    about=__doc__,
    forms={
        "small": tuple(
            f"groups-{shape}-32-4000" for shape in ("0-equal-2", "50-zipf-100", "100-equal-half")
        ),
        "short": tuple(f"groups-{shape}-64-20000" for shape in SHAPES),
        "full": (*REAL, *(f"groups-{shape}-128-200000" for shape in SHAPES)),
    },
    budgets={"small": 1.0, "short": 20.0, "full": 60.0},
    write=page.write,
)
main = partial(run, benchmark=EXCLUSION)

if __name__ == "__main__":
    main()
