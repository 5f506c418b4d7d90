"""Write benchmarks/README.md from the JSON results: no figure on that page is typed by hand.

python benchmarks/report.py
"""

import json
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median, pstdev
from typing import Any

from common import RESULTS

PAGE = Path(__file__).with_name("README.md")
EXCLUSION = "results/exclusion_short.md"


def result(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return content


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def spread(values: list[float], digits: int = 3) -> str:
    return f"{mean(values):.{digits}f} ± {pstdev(values):.{digits}f}"


def ks_vectors() -> str:
    runs = result("ks_vectors")["runs"]
    steps = [
        (
            f"{run['graph']}, {run['nodes']:,} nodes, {run['directed_edges']:,} edges",
            run["dimension"],
            turn["threads"],
            len(turn["seconds"]["ks_step"]),
            f"{1e3 * turn['median_seconds']['ks_step']:.1f} ms",
            f"{1e3 * turn['median_seconds']['spmm']:.1f} ms",
            f"{turn['ratio_of_medians']:.2f}",
            f"{turn['ratio_of_minima']:.2f}",
        )
        for run in runs
        for turn in run["turns"]
    ]
    orders = []
    for run in runs:
        times, cost = run["reordered"]["median_seconds"], run["reordered"]
        saved = times["given"] - times["reordered"]
        spent = cost["seconds_to_find_order"] + cost["seconds_to_move"]
        orders.append(
            (
                run["graph"],
                run["dimension"],
                f"{1e3 * times['given']:.1f} ms",
                f"{1e3 * times['reordered']:.1f} ms",
                f"{1e3 * cost['seconds_to_find_order']:.0f} ms",
                f"{1e3 * cost['seconds_to_move']:.0f} ms",
                f"{spent / saved:.0f} steps" if saved > 0 else "never",
            )
        )
    return (
        "One KS step against `torch.sparse` CSR times dense on the same graph, in turns; edges are directed. Wanted: a "
        "ratio of at most 1.0 at d = 200 and of at most 1.3 at d = 18. With few features rows are in the cache, and "
        "the cosines, which the product has not to take, decide: on Bail (AVX-512, one thread) the weighted sum alone "
        "takes 1.07 times as long as the product, since its order is fixed, and 1.3 would leave the cosine of an edge "
        "1.2 cycles. Tried without gain, with the same bits: prefetching in any case, one pass with 8 rows kept in "
        "registers, cosines a chunk ahead, weights by broadcast, fewer shuffles in sums, rows padded to 32 numbers, "
        "other lengths of runs.\n\n"
        + table(
            (
                "graph",
                "d",
                "threads",
                "rounds",
                "KS step",
                "sparse product",
                "ratio of medians",
                "ratio of the fastest",
            ),
            steps,
        )
        + "\n\nThe same step, on one thread, with the nodes in reverse Cuthill-McKee order (SciPy's), which keeps "
        "neighbours together; the time to find the order and to move graph and features, and the number of steps "
        "that wins it back (KS vectors take three). It is not built in.\n\n"
        + table(("graph", "d", "as given", "reordered", "find order", "move", "pays after"), orders)
    )


def exact_all_nodes() -> str:
    rows = [
        (
            row["graph"],
            f"{row['nodes']:,} x {row['dimension']}",
            f"{row['median_seconds']['ours']:.3f} s",
            f"{row['median_seconds']['faiss_knn_by_class']:.3f} s",
            f"{row['speedup']:.2f}x",
        )
        for row in result("exact_all_nodes")["graphs"]
    ]
    return (
        "Exact top-10 evidence of all nodes against `faiss.knn` of each class against all others, medians in turns. "
        "Wanted: no slower on Facebook. On the 1,000 nodes of German, where either takes milliseconds, filling the "
        "result heaps dominates, and we are slower.\n\n"
        + table(
            ("graph", "size", "IndexEvidenceFlat", "faiss.knn by class", "ours is faster by"), rows
        )
    )


def paper_index() -> str:
    rows = []
    for graph in result("paper_index")["graphs"]:
        for variant in ("LocalCE-I", "w/o WC", "w/o SP"):
            runs = [run for run in graph["runs"] if run["variant"] == variant]
            rows.append(
                (
                    graph["graph"],
                    variant,
                    *(
                        spread([run[key] for run in runs])
                        for key in (
                            "average_similarity_ratio",
                            "recall",
                            "short_rows",
                            "eligible_scanned",
                        )
                    ),
                    f"{median(run['build_seconds'] for run in runs):.2f} s",
                )
            )
    exact = ", ".join(
        f"{graph['graph']} {graph['exact']['average_similarity']:.4f}"
        for graph in result("paper_index")["graphs"]
    )
    return (
        "The paper's index (p = 50, m = 10, theta = pi/3) and its ablations, top-10 of all nodes, mean ± standard "
        "deviation over three seeds of the clustering. AS is the paper's average similarity, here as a share of the "
        f"exact one (exact AS: {exact}). Wanted: built on Facebook in at most 5 s.\n\n"
        + table(
            (
                "graph",
                "index",
                "AS / exact",
                "recall@10",
                "short rows",
                "eligible scanned",
                "build",
            ),
            rows,
        )
        + "\n\nConsequences for the paper's claims:\n\n"
        "- *LocalCE-I comes close to the exact AS*: holds on Bail and Facebook; on Cora it loses a seventh, and on "
        "German, where a cluster often holds fewer than ten nodes of the other class, half. Recall is lower than AS "
        "suggests, since many vectors are nearly as similar as the best.\n"
        "- *Supplementary partitions help*: they raise recall on Bail and Facebook, by looking into half as many "
        "vectors. They do not raise AS anywhere, because the nearest of 500 small clusters is more often too small "
        "to fill a row; on German this costs more than it brings.\n"
        "- *Weighted clustering helps*: not seen. With and without weights, results agree within their spread, and on "
        "Cora they are the same to the last digit: at d = 1,433 every weight is 1, because caps of 60 degrees whose "
        "axes are as far apart as vectors and centroids are there share nothing.\n"
        "- Without supplementary partitions there is no partition before to take weights from, so our w/o SP is one "
        "unweighted spherical k-means; the paper does not say what it weights there."
    )


def where_time_goes() -> str:
    results = result("where_time_goes")["results"]
    rows = [
        (
            row["graph"],
            f"{row['recall']:.4f}",
            row["nlist"],
            row["nprobe"],
            *(f"{us:.2f}" for us in row["us"].values()),
        )
        for row in results
    ]
    return (
        "Microseconds of processor time for a query of an all-nodes search. *Products* are the scan of blocks where "
        "no row can be among the results: they are a lower bound for this engine. In few "
        "dimensions, as on Bail, the products are the smaller part; grouping, routing and keeping "
        "rows take the rest. With one list for a query hardly anything is multiplied, and that is the least that this "
        "engine takes for any recall.\n\n"
        + table(("graph", "recall@10", "nlist", "nprobe", *results[0]["us"]), rows)
    )


def single_query() -> str:
    rows = [
        (
            graph["graph"],
            f"{graph['nodes']:,} x {graph['dimension']}",
            name,
            f"{row['recall']:.3f}",
            f"{row['p50_us']:.0f} us",
            f"{row['p99_us']:.0f} us",
            f"{row['short_rows']:.3f}",
        )
        for graph in result("single_query")["graphs"]
        for name, row in graph["results"].items()
    ]
    return (
        "One query at a time on one thread, the cheapest setting of a sweep with recall@10 >= 0.95. Where classes are "
        "separated, as on Facebook, routing by class needs fewer lists.\n\n"
        + table(("graph", "size", "index", "recall@10", "p50", "p99", "short rows"), rows)
    )


def relabel() -> str:
    content = result("relabel")
    rows = [(step, f"{seconds:.2f} s") for step, seconds in content["seconds"].items()]
    models = content["models"]
    names = "one model", "two models", "relabel and search"
    compared = [
        (search, *(f"{seconds[name]:.2f} s" for name in names), f"{seconds['ratio']:.2f}")
        for search, seconds in models["seconds"].items()
    ]
    return (
        f"New classes for stored vectors, {content['n']:,} x {content['d']} in {content['nlist']:,} lists: all of them "
        f"take {content['share']:.1%} of training and adding. Wanted: under 5 %.\n\n"
        + table(("step", "time"), rows)
        + f"\n\n`audit.compare_models` on {models['people']:,} people with {models['columns']} columns, two threads, "
        "without tests: the time of one and of two models besides the finder's own. The difference is the cost of a "
        "further model. Wanted: at most 1.2 times one `relabel` of an exact index and its search, for the "
        f"{models['k']} nearest of all rows, or for the {models['pairs']:,} most similar pairs.\n\n"
        + table(("evidence", *names, "further model / relabel and search"), compared)
    )


def open_mapped() -> str:
    content = result("open_mapped")
    rows = [
        (
            name,
            f"{index['file_mb']:.0f} MB",
            f"{index['median']['open_ms']:.1f} ms",
            f"{index['median']['resident_mb_opening']:.1f} MB",
            f"{index['median']['first_query_ms']:.0f} ms",
            f"{index['median']['warm_query_ms']:.2f} ms",
        )
        for name, index in content["indexes"].items()
    ]
    return (
        f"Opening {content['n']:,} x {content['d']} with `IO_FLAG_MMAP` in a fresh process. The first query of an "
        "inverted file checks labels and routes, and makes the tables of list offsets; the exact index copies what "
        "it multiplies, since FAISS's format leaves vectors unaligned.\n\n"
        + table(("index", "file", "open", "memory added", "first query", "next query"), rows)
    )


def codecs() -> str:
    content = result("storage_codecs")
    probes = sorted(content["graphs"][0]["codecs"]["Flat"]["recall"], key=int)
    rows = [
        (
            graph["graph"],
            codec,
            f"{row['file_bytes']:.0f}",
            f"{row['in memory']['bytes_after_queries']:.0f}",
            f"{row['mapped']['bytes_after_opening']:.0f}",
            f"{row['mapped']['bytes_after_queries']:.0f}",
            f"{row['mapped']['own_bytes_after_queries']:.0f}",
            f"{row['mapped']['open_ms']:.0f} ms",
            *(f"{row['recall'][nprobe]:.3f}" for nprobe in probes),
            f"{row['single']['ratio']:.2f}x",
            f"{row['many']['ratio']:.2f}x",
        )
        for graph in content["graphs"]
        for codec, row in graph["codecs"].items()
    ]
    sizes = ", ".join(
        f"{graph['graph']} {graph['nodes']:,} x {graph['dimension']}" for graph in content["graphs"]
    )
    return (
        f"Codecs of the inverted file ({sizes}): bytes a vector in the file and in a process, opened into memory or "
        f"mapped, after opening and after {content['queries']} queries; recall@10 of evidence against float32, by "
        f"lists probed; time of a single query, and of {content['together']:,} at once, against Flat at "
        f"{content['timed_nprobe']} lists, on one thread. PQ keeps codes and float32 vectors: it saves "
        "memory when the index is mapped, where only the vectors that are looked at are read.\n\n"
        + table(
            (
                "graph",
                "codec",
                "file",
                "in memory",
                "mapped, opened",
                "mapped, searched",
                "of which no file's pages",
                "opens mapped in",
                *(f"recall, {nprobe} lists" for nprobe in probes),
                "one query",
                "many",
            ),
            rows,
        )
    )


def full_scale() -> str:
    content = result("full_scale_1569960")
    steps, parameters = content["steps"], content["parameters"]
    named = {
        "generate": "the graph is generated",
        "ks": "KS vectors, 3 layers",
        "train": f"training, {parameters['nlist']:,} lists",
        "add": "adding",
        "search": f"top-10 evidence of all nodes, nprobe {parameters['nprobe']}",
        "pairs": "exact top-1000 pairs",
    }
    on_disk = result("full_scale_1569960_on_disk")["steps"]
    rows = [
        (
            what,
            *(
                told
                for run in (steps, on_disk)
                for told in (
                    f"{run[name]['seconds']:.1f} s",
                    f"{run[name]['peak_memory_bytes'] / 1e9:.1f} GB",
                )
            ),
        )
        for name, what in named.items()
    ]
    ours, stock = steps["search"]["settings"], steps["stock"]["settings"]
    speeds = [
        (
            who.format(**setting),
            setting["nprobe"],
            f"{setting['recall']:.3f}",
            f"{setting['nodes_per_second']:,.0f}",
        )
        for who, settings in (("ours, all nodes", ours), ("stock IVF, {how}, a sample", stock))
        for setting in settings
    ]
    ratios = []
    for recall in (0.95, 0.99):
        best = [
            max((s["nodes_per_second"] for s in settings if s["recall"] >= recall), default=None)
            for settings in (ours, stock)
        ]
        if None not in best:
            ratios.append(f"at recall >= {recall}: {best[0] / best[1]:.1f}x")
    products = steps["ks_against_products"]["ratio_of_medians"]
    return (
        f"A synthetic graph of AmazonProducts' shape: {parameters['nodes']:,} nodes, "
        f"{steps['generate']['directed_edges']:,} directed edges, 200 features, 107 classes, homophily "
        f"{steps['generate']['homophily']:.2f}. Every step is a separate process.\n\n"
        + table(("step", "time", "peak memory", "from disk, by blocks: time", "peak memory"), rows)
        + "\n\nA test suite ran at the same time as the run from disk, so its times are too long. The pages of a "
        "mapped file that were read count as memory."
        + f"\n\nKS vectors take {products:.2f} times as long as three sparse products of torch (wanted: at most 1.25). "
        f"Training and adding take {steps['train']['seconds']:.0f} s and {steps['add']['seconds']:.0f} s, and "
        f"{steps['stock']['train_seconds']:.0f} s and {steps['stock']['add_seconds']:.0f} s with a stock "
        "`IndexIVFFlat` of as many lists. "
        "Evidence of all nodes, nodes a second, two threads; the recall is that of 1,000 nodes "
        "whose evidence was searched exactly:\n\n"
        + table(("index", "nprobe", "recall@10", "nodes a second"), speeds)
        + f"\n\nOurs against the stock index, {'; '.join(ratios)}. The settings are those tried, not the cheapest "
        "that reach a recall. HNSW at this size: see engine_1569960.md."
    )


def global_pairs() -> str:
    content = result("global_pairs")
    rows = [
        (
            row["graph"],
            f"{row['nodes']:,} x {row['dimension']}",
            f"{row['seconds']:.2f} s",
            f"{row['comparing_all_seconds']:.2f} s",
            f"{row['speedup']:.1f}x",
            f"{row['stream_seconds']:.2f} s",
        )
        for row in content["graphs"]
    ]
    return (
        f"The exact {content['k']:,} best pairs of an index by thresholds and bounds, next to comparing all pairs: "
        "the same pairs with the same bits. Last: all pairs above the last one's similarity, streamed.\n\n"
        + table(("graph", "size", "by bounds", "all compared", "ratio", "streamed"), rows)
    )


def constraints() -> str:
    content = result("constraints")
    rows = []
    for row in content["constraints"]:
        seconds = row["fastest_cpu_seconds"]
        peers = (
            f"{seconds[peer]:.3f} s" if peer in seconds else ""
            for peer in ("numpy", "faiss.knn by value")
        )
        both = (f"{seconds[name]:.3f} s" for name in ("constrained", "unconstrained"))
        rows.append(
            (row["name"], *both, f"{row['ratio']:.2f}", f"{row['complete_rows']:.3f}", *peers)
        )
    head = (
        "condition",
        "with it",
        "without any",
        "ratio",
        "complete rows",
        "NumPy",
        "faiss.knn by value",
    )
    return (
        f"Exact top-{content['k']} evidence of all {content['nodes']:,} nodes of Bail under constraints, next to the "
        "search without any: the fastest processor times, in turns. NumPy compares all nodes and leaves out what is "
        "ruled out; `faiss.knn` searches the nodes of each class and each of the values together. Both give the same "
        f"similarities. Wanted: a ratio of at most {content['wanted']:g} for `exact` on one attribute and `antiexact` "
        f"on another.\n\n{table(head, rows)}"
    )


def fuzz_files() -> str:
    content = result("fuzz_files")
    rows = [(outcome, f"{count:,}") for outcome, count in content["counts"].items()]
    return (
        f"{content['cases']:,} mutated index files given to the reader in processes whose crash would be noticed; "
        f"crashes, hangs and wrong results: {content['wrong']}.\n\n"
        + table(("outcome", "files"), rows)
    )


def fuzz_shards() -> str:
    content = result("fuzz_shards")
    rows = [(outcome, f"{count:,}") for outcome, count in content["counts"].items()]
    return (
        f"{content['cases']:,} times one file of an index in shards was damaged, the list of shards among them, and "
        "the index opened and searched in every way that reads a list; crashes, hangs, and other results without an "
        f"error: {content['wrong']}.\n\n" + table(("outcome", "cases"), rows)
    )


def shard_checksums() -> str:
    content = result("shard_checksums")
    kinds = content["seconds"]
    rows = [
        (
            what,
            f"{1000 * kinds['with'][what]:.2f} ms",
            f"{1000 * kinds['without'][what]:.2f} ms",
            f"{ratio:.2f}",
        )
        for what, ratio in content["ratio"].items()
    ]
    return (
        f"The cost of a checksum per list: {content['n']:,} x {content['d']} in {content['shards']} shards of "
        f"{content['nlist']:,} lists together, in the page cache; without: files of version 0.2. Queries probe "
        f"{content['nprobe']} lists.\n\n" + table(("step", "with", "without", "ratio"), rows)
    )


def first_use() -> str:
    content, wanted = result("first_use"), result("first_use")["wanted"]
    columns = [("now", content)]
    if (RESULTS / "first_use_2deb883.json").exists():
        columns.append(("commit 2deb883", result("first_use_2deb883")))
    rows = [
        (step, *(f"{run['beyond_second_use'][step]:.3f} s" for _, run in columns))
        for step in content["beyond_second_use"]
    ]
    rows.append(
        ("**in all**", *(f"**{run['beyond_second_use_in_all']:.2f} s**" for _, run in columns))
    )
    rows.append(
        (
            "import, beyond numpy and faiss",
            *(f"{run['import_seconds']:.2f} s" for _, run in columns),
        )
    )
    return (
        "The additional time of the first use of everything on Facebook over the second, in a fresh process with "
        f"nothing cached. Goal: {wanted['beyond_second_use_in_all']:g} s in all, {wanted['import_seconds']:g} s for "
        "the import.\n\n" + table(("step", *(name for name, _ in columns)), rows)
    )


def small_adds() -> str:
    content = result("small_adds")
    rows = [
        (
            kind,
            f"{row['us_per_add']['ours']:.1f} us",
            f"{row['us_per_add']['stock']:.1f} us",
            f"{row['first_search_longer_by']:.3f} s",
            f"{row['ratio']:.2f}",
            "yes" if row["results_as_if_added_at_once"] else "**no**",
        )
        for kind, row in content["indexes"].items()
    ]
    for kind, row in content["indexes"].items():
        if "us_per_add_and_search" in row:
            times = row["us_per_add_and_search"]
            numbers = (
                f"{times['ours']:.1f} us",
                f"{times['stock']:.1f} us",
                "",
                f"{times['ours'] / times['stock']:.2f}",
            )
            rows.append((f"{kind}, each add followed by a search", *numbers, ""))
    return (
        f"{content['adds']:,} adds of one vector where {content['stored']:,} x {content['dimension']} are stored, in "
        "turns with stock IndexIVFFlat and IndexIDMap2 over IndexFlat. The additional time of the first search "
        f"afterwards counts for ours. Goal: a ratio of at most {content['wanted']:g} for the inverted file.\n\n"
        + table(
            (
                "index",
                "ours",
                "stock",
                "first search longer by",
                "ratio",
                "results as if added at once",
            ),
            rows,
        )
    )


def changes() -> str:
    content = result("changes")
    rows = [
        (
            f"{run['n']:,} x {run['d']}, {name}",
            f"{kind['change']['median_us']:.0f} us",
            f"{kind['change_and_search']['median_us']:.0f} us",
            f"{kind['change_and_search']['p99_us']:.0f} us",
            f"{1000 * run['wanted_ms']:.0f} us",
            f"{kind['warm_search']['median_us']:.0f} us",
        )
        for run in content["runs"]
        for name, kind in run["changes"].items()
    ]
    lookups = " and ".join(
        f"{run['first_lookup_seconds']:.2f} s at {run['n']:,} rows" for run in content["runs"]
    )
    same = all(run["same_results_as_a_copy"] for run in content["runs"])
    return (
        "Changes of one row of an inverted file, each followed by a search, which derives the data of the changed "
        "list again; medians and the 99th percentile. Searches give "
        f"{'the same results as' if same else '**other results than**'} in a copy that carries no data over.\n\n"
        + table(("change", "change", "with the next search", "p99", "wanted", "warm search"), rows)
        + "\n\nThese parts still grow with the number of rows n, lists or changes. The first lookup of an id maps all "
        f"ids once, {lookups}. A search of all rows or with `sel=` copies the labels (4 n bytes) after a change. When "
        "more than an eighth of the lists have changed, all class centroids and blocks are computed again, and all "
        "labels moved together. Each snapshot holds some addresses per list. With supplementary partitions all "
        "references and centroids are computed again after each change. A direct map of FAISS is rebuilt by a removal."
    )


def groups() -> str:
    content = result("groups")
    per_row = [(way, f"{run['per scanned row']:.2f}") for way, run in content["groups"].items()]
    rules, labels, pairs = content["rules"], content["labels"], content["pairs"]
    of_rules = [
        (rule, *(f"{rules[part][rule] / rules[part]['plain']:.2f}" for part in ("batch", "one")))
        for rule in rules["batch"]
        if rule != "plain"
    ]
    names = "search_per_label", "one search per label"
    of_labels = [
        (
            nprobe,
            *(
                f"{run['seconds'][name]:.3f} s at recall {run[f'recall, {name}']:.3f}"
                for name in names
            ),
        )
        for nprobe, run in labels.items()
    ]
    of_pairs = [
        (
            rows,
            *(f"{run[name]:.2f} s" for name in ("global_evidence", "evidence_pairs")),
            f"{run['similarity']:.3f}",
        )
        for rows, run in pairs.items()
    ]
    return (
        f"{content['rows']:,} x {content['d']}, k = {content['k']}, nprobe = {content['nprobe']}, two threads, in "
        "turns; medians.\n\n25,000 groups of two rows against two classes: time per scanned row of another group. "
        "Wanted: at most 1.5.\n\n"
        + table(("search", "groups of two / two classes"), per_row)
        + "\n\nTime of a rule, in searches without rules:\n\n"
        + table(("rule", "5,000 stored rows", "one stored row"), of_rules)
        + "\n\n1,000 queries for the k nearest rows of each of five labels, which are independent of the vectors:\n\n"
        + table(("", *names), of_labels)
        + "\n\nThe 1,000 most similar pairs, and all pairs at the similarity of the last of them. Wanted: at most "
        "twice the time.\n\n"
        + table(
            ("rows near a subspace of", "global_evidence(k=1000)", "evidence_pairs", "similarity"),
            of_pairs,
        )
    )


def metrics() -> str:
    content = result("metrics")
    rows: list[tuple[str, ...]] = []
    of_cosine: dict[tuple[str, str], float] = {}
    for run in content["results"]:
        data, metric, rivals = run["data"], run["metric"], run["rivals"]
        row = [f"{data}, {run['n']:,} x {run['d']}", metric]
        for time in ("all_rows_us", "one_query_us"):
            times = {name: rival[time] for name, rival in rivals.items() if time in rival}
            ours, exact = times.pop("ours"), times.pop("ours, exact")
            best = min(times, key=times.__getitem__)
            ratio = times[best] / ours
            of_cosine.setdefault((data, time), ratio)  # its results come first
            row += [
                f"{ours:.1f} us",
                f"{exact:.1f} us",
                f"{times[best]:.1f} us ({best})",
                f"{ratio:.2f}",
            ]
            row.append(f"{ratio / of_cosine[data, time]:.2f}")
        rows.append(tuple(row))
    wanted, ratios = (
        content["wanted"],
        [float(row[i]) for row in rows if row[1] != "cosine" for i in (6, 11)],
    )
    reached = sum(ratio >= wanted for ratio in ratios)
    columns = [
        f"{what}{name}"
        for what in ("", "one query: ")
        for name in ("ours", "exact", "best peer", "ratio", "of cosine's")
    ]
    return (
        f"Time of a row at recall@10 = {content['recall']} on one thread, of all rows and of one query, in turns with "
        "FAISS's indexes of the same metric: an inverted file with a selector, one per class, HNSW with a selector, "
        "and exact search of each class, each with the smallest setting that reaches the recall. `cosine` searches "
        "the same rows, normalised. Wanted: the ratio to the best of them is at least "
        f"{wanted} of that of `cosine`; {reached} of {len(ratios)} reach it.\n\n"
        + table(("data", "metric", *columns), rows)
    )


def ks_updates() -> str:
    content = result("ks_updates")
    rows = [
        (
            graph["graph"],
            "all layers" if run["stored_layers"] else "features only",
            run["change"],
            f"{run['size']:,}",
            f"{run['median_rows'] / graph['nodes']:.1%}",
            f"{run['median_ms']:.1f} ms",
            f"{run['median_full_ms']:.1f} ms",
            f"{run['of_full']:.2f}",
            f"{run['of_surroundings']:.2f}",
        )
        for graph in content["graphs"]
        for run in graph["runs"]
    ]
    runs = [run for graph in content["graphs"] for run in graph["runs"]]
    stored, same = (
        [run for run in runs if run["stored_layers"]],
        all(run["same_bits"] for run in runs),
    )

    def kept(some: list[Any], ratio: str, most: float) -> str:
        return f"{sum(round(run[ratio], 2) <= most for run in some)} of {len(some)} changes"

    return (
        "`KSVectors.update` next to `ks_vectors` of the changed graph, L = 3, in turns, one thread; medians. The "
        f"vectors are {'the same, bit for bit' if same else '**not the same**'}. The last column relates the update to "
        "the share of a full computation that belongs to the surroundings, the rows and edges at most L hops from the "
        f"change. Wanted: at most 1.5 there, which {kept(stored, 'of_surroundings', 1.5)} with stored layers keep, and "
        f"at most 1.2 of a full computation, which {kept(runs, 'of_full', 1.2)} keep. Changes of one edge on Bail, "
        "with 18 dimensions, miss the first, and changes of 1,000 the second: there the lists take as long as some of "
        "the sums. "
        "Without stored layers the surroundings of 2 L hops are read.\n\n"
        + table(
            (
                "graph",
                "stored",
                "change",
                "edges or rows",
                "rows reached",
                "update",
                "all",
                "of all",
                "of surroundings",
            ),
            rows,
        )
    )


def drift() -> str:
    content, others = result("drift"), result("drift_others")
    rows = [
        (
            run["name"],
            f"{step['size']:g}",
            f"{step['drift']:.3f}",
            f"{step['drift_trained']:.3f}",
            *(f"{step[which]['recall']:.3f}" for which in ("kept", "trained")),
            *(f"{step[which]['rows_at_recall']:,.0f}" for which in ("kept", "trained")),
            f"{step['rows_ratio']:.2f}",
        )
        for run in (*content["runs"], *others["runs"])
        for step in run["steps"]
    ]
    correlated = [
        (
            metrics,
            name.replace("_", " "),
            f"{losses['rows_ratio']:.2f}",
            f"{losses['recall_lost']:.2f}",
        )
        for metrics, part in (("cosine", content), ("ip, l2", others))
        for name, losses in part["correlations"].items()
    ]
    return (
        "Vectors of an inverted file are replaced in place, step by step. `index.drift()` next to what an index loses "
        "that was trained before the first step (kept), against one trained on the same vectors (trained): recall@10 "
        "at nprobe = 16, and rows scanned for a recall@10 of 0.95, one query at a time. The size is the angle of the "
        "movement, the share of exchanged clusters, the length of the shift, or the share of random edges or nodes. "
        "The metric is cosine unless said; vectors for ip and l2 (`--others`) have different lengths.\n\n"
        + table(
            (
                "change",
                "size",
                "drift, kept",
                "drift, trained",
                "recall, kept",
                "recall, trained",
                "rows, kept",
                "rows, trained",
                "ratio of rows",
            ),
            rows,
        )
        + "\n\nSpearman's correlation of the candidates with the losses, over all steps together. The other candidates "
        "are the angle between centroids and means of lists (the mean of 1 - cos), the loss of similarity of rows to "
        "their centroids since training, and FAISS's imbalance factor.\n\n"
        + table(
            ("metric", "number", "with the ratio of rows", "with the loss of recall"), correlated
        )
    )


def store() -> str:
    content = result("store")
    single = content["single"]
    queries = [(name, f"{us:.1f} us") for name, us in single["us_per_query"].items()]
    searches = [
        (
            f"{row['share']:.1%}",
            f"{row['rows']:,}",
            *(
                f"{row['ms_per_query'][name]:.2f} ms"
                for name in ("store.search", "store.evidence", "stock search")
            ),
            f"{row['same_results']:.0%}",
        )
        for row in content["filtered"]
    ]
    steps = [
        (step, f"{times['store']:.2f} s", f"{times['index']:.2f} s")
        for step, times in content["seconds"].items()
    ]
    return (
        f"{content['rows']:,} rows of {content['dimension']} dimensions with ids, classes, three keys of metadata and "
        f"a text, k = {content['k']}. Evidence of one query through a store over an inverted file of {single['nlist']} "
        f"lists (nprobe = {single['nprobe']}): {single['us_more']:.1f} us more than `search_evidence` of its index for "
        f"a vector, {single['us_more_by_id']:+.1f} us next to `search_stored` for an id. Wanted: at most "
        f"{content['wanted_us']:g} us more.\n\n"
        + table(("one query", "median"), queries)
        + "\n\nOne query among the rows that a filter leaves, next to stock IndexFlatIP with the ready bitmap of these "
        f"rows. The first filter on a key takes {content['first_filter_seconds']:.2f} s more.\n\n"
        + table(
            ("left", "rows", "store.search", "store.evidence", "stock search", "same results"),
            searches,
        )
        + "\n\nAll rows, through a store and of the index alone:\n\n"
        + table(("step", "store", "index"), steps)
    )


def levels() -> str:
    content = result("levels")
    rows = [
        (
            graph["graph"],
            row["nlist"],
            row["nprobe"],
            level,
            f"{1e3 * row['seconds'][level]:.1f} ms",
            f"{row['ratio'][level]:.2f}x",
            "yes" if row["same_bits"] else "**no**",
        )
        for graph in content["graphs"]
        for row in graph["settings"]
        for level in row["seconds"]
    ]
    left_out = {
        f"{level} ({why})"
        for graph in content["graphs"]
        for level, why in graph["left_out"].items()
    }
    return (
        "All nodes on one thread with the core's instruction sets, processes in turns. Wanted: AVX2 at most "
        f"{content['wanted']:g} times as long as AVX-512 with VNNI. Not run: {', '.join(sorted(left_out)) or 'none'}."
        "\n\n"
        + table(
            ("graph", "nlist", "nprobe", "CFE_SIMD", "time", "of the first", "same bits at all"),
            rows,
        )
    )


def paper_preset() -> str:
    content = result("paper_preset")
    rows = [
        (
            threads,
            name,
            f"{seconds:.2f} s",
            f"{run['ours_takes'][name]:.2f}" if name != "ours" else "",
        )
        for threads, run in content["threads"].items()
        for name, seconds in run["median_seconds"].items()
    ]
    return (
        f"The paper's preset, trained and filled, on {content['graph']}, next to {content['partitions']} "
        f"`faiss.Kmeans` of {content['clusters']} centroids with {content['niter']} iterations each, over all vectors "
        "(with their assignment, too, and on its default sample), in turns. Wanted: a ratio of at most 1.\n\n"
        + table(("threads", "what", "time", "ours / this"), rows)
    )


def memory() -> str:
    content, before = result("memory"), result("memory_2deb883")
    earlier = {graph["graph"]: graph["bytes_per_vector"] for graph in before["graphs"]}
    rows = []
    for graph in content["graphs"]:
        for factory, bytes_ in graph["bytes_per_vector"].items():
            was = earlier[graph["graph"]][factory]
            rows.append(
                (
                    f"{graph['graph']} {graph['nodes']:,} x {graph['dimension']}",
                    factory,
                    *(f"{bytes_[step]:,.0f} ({was[step]:,.0f})" for step in bytes_),
                    f"{bytes_['after all nodes'] / was['after all nodes']:.2f}",
                )
            )
    steps = next(iter(content["graphs"][0]["bytes_per_vector"].values()))
    return (
        "Bytes per vector of an index in a process, in brackets at commit 2deb883. Goal: no more.\n\n"
        + table(("graph", "index", *steps, "ratio"), rows)
    )


def recall_kept() -> str:
    content = result("recall_kept")
    unfinished = (
        "**The run is not finished: sets of some kinds are missing.**\n\n"
        if "unfinished" in content
        else ""
    )
    cells = [
        (kind, mode, wanted, told)
        for kind, modes in content["summary"].items()
        for mode, by_recall in modes.items()
        for wanted, told in by_recall.items()
    ]
    rows = []
    for kind, mode, wanted, told in cells:
        means, classes, least = told["means below"], told["classes below"], told["least class"]
        rows.append(
            (
                kind,
                mode,
                wanted,
                told["sets"],
                f"{told['mean']:.4f}",
                f"{told['least mean'][0]:.4f} ({told['least mean'][1]})",
                f"{means[0]} ({means[1]})",
                told["classes"],
                f"{least[0]:.4f} ({least[2]}, class {least[1]})" if least else "-",
                f"{classes[0]} ({classes[1]})",
                f"{told['lists']:.1f}",
                f"{told['ratio']:.2f}",
            )
        )
    head = (
        "sets",
        "search",
        "asked for",
        "number",
        "mean",
        "least mean",
        "means below",
        "classes",
        "least class",
    )
    return (
        "The recall@10 that `recall=` gives on sets for which nothing was tuned: small synthetic ones of shapes drawn "
        "at random; classes 99:1, 90:10, and 20 classes of Zipf sizes; codecs and partitions; crowded graphs; and the "
        "real ones, wholly and with a fifth of the nodes as new queries. Wanted: every mean reaches the recall, and "
        "every class with at least 100 stored rows reaches the recall less .01.\n\n"
        "Stored rows are all measured, so their recall is known. New queries are a sample, about 10,000 of a synthetic "
        "set: in brackets is how many means or classes are below beyond the noise of that, by a one-sided test at 1 % "
        "each.\n\n"
        "The cost is in the last two columns: the lists that a query probes, in the mean over the sets, and how many "
        "times as many these are as for a promise for the mean alone (geometric mean over the sets). The promise "
        "of earlier versions takes the smallest `nprobe` whose mean recall over 2,000 stored rows (500 for single "
        "queries) reaches what is asked for with 95 % confidence.\n\n"
        + unfinished
        + table((*head, "classes below", "lists", "ratio"), rows)
    )


def percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def interval_coverage() -> str:
    content = result("interval_coverage")
    rows = []
    for name, title in (
        ("ratio", "ratio of shares (Koopman)"),
        ("difference", "difference of shares (Newcombe)"),
    ):
        held = [row[name] for row in content["two_shares"]]
        rows.append((title, len(held), percent(min(held)), percent(max(held))))
    for clusters, sizes in dict.fromkeys(
        (row["clusters"], row["sizes"]) for row in content["clustered"]
    ):
        held = [
            row["held"]
            for row in content["clustered"]
            if (row["clusters"], row["sizes"]) == (clusters, sizes)
        ]
        rows.append(
            (
                f"share in {clusters:,} clusters {sizes}",
                len(held),
                percent(min(held)),
                percent(max(held)),
            )
        )
    return (
        "How often 95 % intervals hold the truth: of two shares by enumeration, of clustered cases (`only_in`) in "
        f"{content['runs']:,} simulated samples each. Wanted: 93 % at least. Where a sixth of the clusters hold four "
        "fifths of the cases, no interval made from few of them does.\n\n"
        + table(("interval", "settings", "least", "most"), rows)
    )


def only_in() -> str:
    content = result("only_in")
    rows = [(step, f"{seconds:.1f} s") for step, seconds in content["seconds"].items()]
    return (
        f"`audit.only_in` for one of {content['attributes']} categorical attributes of {content['n']:,} nodes: "
        f"{content['pairs']:,} pairs, {content['different']:,} of them classified differently. Wanted: under 60 s. It "
        f"took {content['peak_mib_beyond_data']:.0f} MiB beyond the data at most.\n\n"
        + table(("step", "time"), rows)
    )


def coverage() -> str:
    content = result("coverage")
    shuffled = [
        (
            row["vectors"],
            f"{row['nodes']:,}",
            row["share_of_first_class"],
            percent(row["tied"]),
            f"{row['share']:.4f}",
            f"{row['expected']:.4f}",
            f"{row['without_ties']:.4f}",
            percent(row["held"]),
        )
        for row in content["consistency"]
    ]
    accuracy = [
        (
            f"{row['nodes']:,}",
            row["drawn_anew"],
            row["k"],
            f"{row['accuracy']:.3f}",
            percent(row["held"]),
        )
        for row in content["accuracy"]
    ]
    return (
        "How often do 95 % intervals of the audits hold what they should? Vectors in six clusters, classes with noisy "
        f"linear borders, {content['graphs']} graphs a cell.\n\n"
        "**Consistency, classes shuffled over the nodes.** `expected` should equal the mean share, ties or not; "
        "beside it what it would be without counting ties. Wilson's interval takes nodes for independent.\n\n"
        + table(
            (
                "vectors",
                "nodes",
                "first of two classes",
                "nodes with ties",
                "mean share",
                "mean expected",
                "without ties",
                "Wilson's interval holds expected",
            ),
            shuffled,
        )
        + "\n\n**Accuracy within the evidence.** The band of `error_rate_by_evidence` against the mean accuracy, if "
        "true classes are redrawn for the same predictions, and if the model is trained again on other nodes.\n\n"
        + table(("nodes", "redrawn", "k", "mean accuracy", "holds"), accuracy)
    )


def langchain_store() -> str:
    content = result("langchain_store")
    steps = [
        (
            step,
            clock,
            f"{times['ours'][clock]:.2f} s",
            f"{times['theirs'][clock]:.2f} s",
            f"{times['ours'][clock] / times['theirs'][clock]:.2f}",
        )
        for step, times in content["median_seconds"].items()
        for clock in times["ours"]
    ]
    searched = [
        (
            search,
            threads,
            rival,
            f"{row['ms_per_query']:.2f} ms",
            f"{rivals['ours']['ms_per_query'] / row['ms_per_query']:.2f}",
            f"{row['recall']:.3f}",
        )
        for threads, searches in content["searches_by_threads"].items()
        for search, rivals in searches.items()
        for rival, row in rivals.items()
    ]
    sizes = content["bytes_on_disk"]
    return (
        f"{content['documents']:,} documents of {content['dimension']} dimensions in `EvidenceVectorStore`, next to "
        "langchain-community's FAISS store with an exact index, in turns; on one thread searches are timed by the "
        "processor's clock, else by the wall's. Wanted: ratios of at most 1, and a recall of 1. Under a filter theirs "
        "takes the 20 most similar documents (`fetch_k`) and drops what does not match; with `fetch_k` at the number "
        "of documents nothing is lost. For evidence theirs filters by the class. On disk: "
        f"{sizes['ours'] / 1e6:.0f} MB, theirs {sizes['theirs'] / 1e6:.0f} MB.\n\n"
        + table(("step", "clock", "ours", "theirs", "ratio"), steps)
        + "\n\n"
        + table(
            (f"search, k = {content['k']}", "threads", "store", "a query", "ours takes", "recall"),
            searched,
        )
    )


def mining() -> str:
    content = result("mining")
    rows = [
        (
            *name.split(", "),
            f"{found['seconds']['ours']:.2f} s",
            f"{found['seconds']['original']:.2f} s",
            f"{found['seconds']['original'] / found['seconds']['ours']:.2f}x",
            "yes" if found["same_results"] else "**no**",
        )
        for name, found in content["functions"].items()
    ]
    return (
        "The functions of `cfe_faiss.mining` next to the libraries that they equal, in turns, on "
        f"{content['rows']:,} rows of {content['d']} numbers around centres. The results are compared. FAISS's own "
        "searches beat ours where the ratio is below 1.\n\n"
        + table(
            ("function", "original", "ours", "the original's", "ours is faster by", "same results"),
            rows,
        )
    )


def audit_report() -> str:
    content = result("audit_report")
    rows = [
        (
            run["table"],
            f"{run['rows']:,} x {run['columns']}",
            f"{run['seconds']:.0f} s",
            f"{run['processors']:.0f} s",
            run["choices"],
        )
        for run in content["runs"]
    ]
    return (
        "`cfe-faiss audit` from the CSV to the written report: a table of numbers, skewed amounts, counts, categories "
        "and missing cells with two sensitive attributes and a truth, drawn at random, and the public table of "
        f"credit cards. Wanted: {content['wanted']:.0f} s for 30,000 rows of 100 columns on two cores. On a busy "
        "machine the clock says little, and the time of all processors more: "
        f"{content['load']:.0f} processes waited for the cores at the end of this run. Choices are those of the "
        "sensitivity of the findings.\n\n"
        + table(("table", "size", "clock", "processors", "choices"), rows)
    )


SECTIONS = {
    "KS vectors": ("ks_vectors", ks_vectors),
    "Exact search of all nodes": ("exact_all_nodes", exact_all_nodes),
    "The paper's index": ("paper_index", paper_index),
    "A single query": ("single_query", single_query),
    "Where the time of all nodes goes": ("where_time_goes", where_time_goes),
    "New labels": ("relabel", relabel),
    "Opening a file": ("open_mapped", open_mapped),
    "Codecs": ("storage_codecs", codecs),
    "Damaged files": ("fuzz_files", fuzz_files),
    "Damaged shards": ("fuzz_shards", fuzz_shards),
    "Checksums of shards": ("shard_checksums", shard_checksums),
    "The most similar pairs": ("global_pairs", global_pairs),
    "Constraints on pairs": ("constraints", constraints),
    "First use": ("first_use", first_use),
    "Adding one vector at a time": ("small_adds", small_adds),
    "Changes of one row": ("changes", changes),
    "Groups, rules and labels": ("groups", groups),
    "Metrics": ("metrics", metrics),
    "Mining": ("mining", mining),
    "Updates of KS vectors": ("ks_updates", ks_updates),
    "Drift of an index": ("drift", drift),
    "Instruction sets": ("levels", levels),
    "The paper's preset next to k-means": ("paper_preset", paper_preset),
    "Memory of an index in use": ("memory", memory),
    "Recall that is asked for": ("recall_kept", recall_kept),
    "Intervals of the audits": ("coverage", coverage),
    "Intervals of the tests of a model": ("interval_coverage", interval_coverage),
    "Pairs that differ in one attribute only": ("only_in", only_in),
    "The report of an audit": ("audit_report", audit_report),
    "A store of documents": ("store", store),
    "A LangChain store": ("langchain_store", langchain_store),
    "Full scale": ("full_scale_1569960", full_scale),
}


_EARLIER = "; measured before the native core was complete"


def _is_earlier(environment: dict[str, Any]) -> bool:
    """Whether a result is from before that: which instruction sets there are is told since then."""
    return "instruction_sets" not in environment


def page() -> str:
    parts = [
        "# Benchmarks\n\nOne script per question; each writes a JSON result into `results/`, with the versions and the "
        "processor, and `python benchmarks/report.py` writes this page from them. Graphs are read from `CFE_DATA`. "
        "Trust ratios, not absolute times: they are taken in one run, on two shared cores.\n\n"
        "The comparison of the engine with tuned peers has separate pages, from `python -m benchmarks.engine.run`: on "
        "a processor with AVX-512 VNNI tables with clumps and clusters ([engine_tables.md](results/engine_tables.md), "
        "the newest there), the real graphs ([engine_core.md](results/engine_core.md)) and 200,000 nodes "
        "([engine_core_200k.md](results/engine_core_200k.md)); on one with AVX2 only, on the newest code, the real "
        "graphs and two of 20,000 nodes ([engine_real.md](results/engine_real.md)); on older code the real graphs, two "
        "of 20,000 nodes and three whose similarities crowd together ([engine_avx2.md](results/engine_avx2.md)), and "
        "1,569,960 nodes at low homophily ([engine_1569960.md](results/engine_1569960.md)); before the native core, "
        "the real graphs and 20,000 nodes ([engine_short.md](results/engine_short.md)), and 1,569,960 nodes at high "
        "homophily ([engine_1569960_high.md](results/engine_1569960_high.md)). "
        "The nearest rows outside a group, on generated data that others can run: `python -m benchmarks.exclusion.run` "
        f"([{Path(EXCLUSION).name}]({EXCLUSION})). "
        "The paper's experiments are in [paper](paper/README.md)."
    ]
    for title, (name, section) in SECTIONS.items():
        if not (RESULTS / f"{name}.json").exists():
            print(f"left out: {title}: run benchmarks/{name}.py")
            continue
        environment = result(name)["environment"]
        packages = environment["packages"]
        script = name.removesuffix("_1569960")
        when = _EARLIER if _is_earlier(environment) else ""
        where = (
            f"`python benchmarks/{script}.py` ({environment['processor']}, {environment['threads']} threads, "
            f"faiss-cpu {packages['faiss-cpu']}, NumPy {packages['numpy']}{when})"
        )
        parts.append(f"## {title}\n\n{where}\n\n{section()}")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    PAGE.write_text(page())
    print(f"written to {PAGE}")


if __name__ == "__main__":
    main()
