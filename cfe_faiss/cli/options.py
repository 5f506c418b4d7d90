"""Options that several commands share."""

from dataclasses import replace
from pathlib import Path

from cfe_faiss.cli.parser import Either, Group, argument, needing, source
from cfe_faiss.datasets import NAMES

MODELS = ("gcn", "gat", "gin", "mpnn", "sage")
"""``cfe_faiss.models.NAMES``, copied because importing the models loads PyTorch."""
DATASETS = ", ".join(NAMES)

TEXT_FORMAT = needing(
    (
        argument(
            "--encoding",
            metavar="NAME",
            help="encoding of text files, such as latin-1; default: UTF-8",
        ),
        argument(
            "--separator",
            metavar="CHARACTER",
            help="between two fields of text files; default: found from the lines",
        ),
        argument(
            "--header",
            choices=("first", "none"),
            help="whether the first line of text files has the names of the columns; with none they are called 1, 2, "
            "...; default: first, unless it holds numbers only",
        ),
        argument(
            "--decimal", choices=(".", ","), help='decimal mark of numbers in tables; default: "."'
        ),
        argument(
            "--thousands",
            metavar="MARK",
            help="mark of thousands of numbers in tables; default: none",
        ),
        argument(
            "--na",
            metavar="TEXT",
            nargs="+",
            help='texts for missing values, beside those of pandas, such as "?"',
        ),
        argument(
            "--keep-text",
            metavar="COLUMN",
            nargs="+",
            help="columns that are read as they stand: NA, for example, is a text",
        ),
    ),
    "--features",
)
"""Form of the text files."""

DATASET = argument("--dataset", choices=NAMES, metavar="NAME", help=f"a known data set: {DATASETS}")
DATA_ROOT = argument(
    "--data-root",
    metavar="DIR",
    type=Path,
    needs=("--dataset",),
    help="folder of the data sets' files; default: $CFE_DATA, else data",
)
FEATURES = argument(
    "--features",
    metavar="FILE",
    type=Path,
    help="a table, one row per node: .csv, .tsv or .txt (also .gz, .bz2, .xz and .zip), .parquet or .xlsx with a "
    "header; or a matrix without one, .npy, .csv or .txt",
)
ID = argument(
    "--id",
    metavar="COLUMN",
    needs=("--features",),
    help="column of the nodes' ids, in every file; default: row numbers",
)
PREDICTIONS = source(
    "--predictions",
    help="predicted class of every node, a number or a text; or a column of probabilities for each class",
)
UNKNOWN = argument(
    "--unknown",
    metavar="VALUE",
    nargs="+",
    needs=("--features",),
    help="classes that stand for an unknown one, beside empty ones; default: -1, unless 1 is the only other class",
)
THRESHOLD = argument(
    "--threshold",
    metavar="CONDITION",
    needs=("--features",),
    refuses=("--predictions",),
    help='in place of --predictions: a decision by a number of the table, such as "score>=5", which is favourable '
    "if it holds",
)
IGNORE = argument(
    "--ignore",
    metavar="COLUMN",
    nargs="+",
    needs=("--features",),
    help="columns that are neither compared nor reported",
)
MODEL = (
    PREDICTIONS,
    replace(THRESHOLD, refuses=("--predictions", "--model")),
    argument(
        "--model",
        choices=MODELS,
        refuses=("--predictions",),
        help="the model to train, with --truth for own files; default: gcn for a data set, none for own files",
    ),
)
SEARCHED = argument(
    "--nodes",
    metavar="WHICH",
    help="test, all, or a file of ids or with a mask (0, 1); default: test if there is a split, else all",
)
WITHOUT = argument(
    "--without",
    metavar="NAME",
    nargs="+",
    help="attributes by which nodes are not compared; columns that go one to one with them leave, too",
)
OWN_FILES = Group(
    "own files",
    (
        ID,
        source(
            "--edges",
            "FILE[:A,B]",
            needs=("--features",),
            help="two columns of ids; without ids also a pair of row numbers per line in .csv or .txt, edge_index "
            "(2, E) in .npy, a SciPy sparse matrix in .npz",
        ),
        argument(
            "--neighbours",
            metavar="K",
            type=int,
            help="in place of --edges: join each node to its K nearest nodes",
        ),
        source(
            "--truth",
            needs=("--features",),
            help="true class of every node, in the words of the predictions or in others",
        ),
        UNKNOWN,
        source(
            "--split",
            needs=("--features",),
            help="train, val or test for each node; default: at random, half, a quarter, a quarter of every class",
        ),
        argument(
            "--categorical",
            metavar="COLUMN",
            nargs="+",
            needs=("--features",),
            help="numbers that are codes, such as postal codes",
        ),
        argument(
            "--missing",
            choices=("keep", "error"),
            needs=("--features",),
            help="missing values of features: one standard deviation from known ones (default), or an error",
        ),
        IGNORE,
        argument(
            "--as-is",
            action="store_true",
            help="keep numbers unscaled; default: every number counts in standard deviations",
        ),
        argument(
            "--scale",
            metavar="NAME=WEIGHT",
            nargs="+",
            needs=("--features",),
            help="count a difference in this column so many times",
        ),
    ),
    "Tables have a header. FILE:COLUMN, or FILE COLUMN, names a column; a column named in the "
    "table of features is no "
    "feature.",
)
CONSTRAINTS = (
    argument("--exact", metavar="NAME", nargs="+", help="both nodes have the same value"),
    argument("--antiexact", metavar="NAME", nargs="+", help="both nodes have different values"),
    argument(
        "--caliper",
        metavar="NAME=WIDTH",
        nargs="+",
        help="largest difference of a number; negative: smallest difference",
    ),
    argument(
        "--std-caliper", metavar="NAME=WIDTH", nargs="+", help="the same in standard deviations"
    ),
    argument(
        "--permitted",
        metavar="NAME=RANGE",
        nargs="+",
        help="values of the evidence: LOW:HIGH (one may be left out), or A,B,C",
    ),
    argument("--target", metavar="CLASS", nargs="+", help="class of the evidence"),
    argument("--max-changed", metavar="N", type=int, help="at most N attributes differ"),
    argument("--min-hops", metavar="N", type=int, help="at least N hops apart in the graph"),
    argument("--no-common-neighbours", action="store_true", help="no node is a neighbour of both"),
    argument("--ratio", metavar="N", type=int, help="each node is in at most N pairs"),
)
INDEX = argument("index", metavar="INDEX", type=Path, help="an index file that build wrote")
JSON = argument(
    "--json", dest="format", action="store_const", const="json", help="one JSON document"
)
FORMAT = Either(
    (
        JSON,
        argument(
            "--csv", dest="format", action="store_const", const="csv", help="CSV with a header"
        ),
    )
)
OF_INDEX = (
    Group(
        "names of nodes and classes",
        (
            argument("--features", metavar="FILE", type=Path, help="the table of the nodes"),
            *TEXT_FORMAT,
            ID,
            *needing((PREDICTIONS,), "--features"),
            THRESHOLD,
            UNKNOWN,
            IGNORE,
        ),
        "The files that the index was built from; default: numbers.",
    ),
    Group("conditions on pairs", needing(CONSTRAINTS, "--features")),
)
"""What the nodes of an index are called, and conditions on their attributes."""
