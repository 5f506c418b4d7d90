"""Run the whole reproduction, the cheap experiments first, and write the page from its results.

    CFE_DATA=... python benchmarks/paper/run.py [--quick] [--amazon] [--only NAME ...]

Without ``--amazon`` it leaves out ``scalability.py``. It can be stopped at any time, and goes on where it was.
"""

import argparse
import time
from importlib import import_module

from setting import add_arguments, bench_of, run

# Effectiveness trains a GCN per graph and seed, which those after it share; the other GNNs come last.
ORDER = (
    "effectiveness",
    "prediction_errors",
    "efficiency",
    "complexity",
    "unfairness",
    "case_study",
    "fine_tuning",
    "generality",
)
LONG = "scalability"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument(
        "--amazon",
        action="store_true",
        help=f"run {LONG}.py, too: long, up to 12 GB (tiny with --quick)",
    )
    parser.add_argument("--only", nargs="+", choices=[*ORDER, LONG], help="these experiments only")
    options = parser.parse_args()
    bench = bench_of(options)
    names = options.only or [*ORDER, *([LONG] if options.amazon else [])]
    start = time.perf_counter()
    print(f"order: {', '.join(names)}; {len(bench.seeds)} seeds; results in {bench.folder}")
    for i, name in enumerate(names, start=1):
        print(f"\n[{i}/{len(names)}, {time.perf_counter() - start:.0f} s so far]", flush=True)
        run(import_module(name), bench)
    print(
        f"\npage: {import_module('report').write_page(bench.folder)}; {time.perf_counter() - start:.0f} s in all"
    )


if __name__ == "__main__":
    main()
