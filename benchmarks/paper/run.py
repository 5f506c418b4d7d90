"""Run the whole reproduction, the cheap experiments first, and write the page from its results.

    CFE_DATA=... python benchmarks/paper/run.py [--quick] [--amazon] [--only NAME ...]

Without ``--amazon`` it leaves out ``scalability.py``. It can be stopped at any time, and goes on where it was.
"""

import argparse
import time
from importlib import import_module
from pathlib import Path

from setting import HERE, Bench, run

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
    parser.add_argument(
        "--quick", action="store_true", help="tiny made-up graphs and two seeds: no file needed"
    )
    parser.add_argument(
        "--amazon-folder",
        type=Path,
        help="KS vectors (X.npy) and classes (labels.npy) of the Amazon shape, made before",
    )
    parser.add_argument(
        "--folder", type=Path, help="of results, figures and cache; default: that of the scripts"
    )
    parser.add_argument(
        "--amazon",
        action="store_true",
        help=f"run {LONG}.py, too: long, up to 12 GB (tiny with --quick)",
    )
    parser.add_argument("--only", nargs="+", choices=[*ORDER, LONG], help="these experiments only")
    options = parser.parse_args()
    folder = options.folder or (HERE / "cache" / "quick" if options.quick else HERE)
    bench = Bench(options.quick, folder, options.amazon_folder)
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
