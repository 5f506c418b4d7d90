"""The paper's graphs, a small one that needs no files, and random ones of the shape of the large ones."""

import os
from typing import TYPE_CHECKING, Any

from cfe_faiss.checks import as_count
from cfe_faiss.datasets.files import root_folder

if TYPE_CHECKING:
    from torch_geometric.data import Data

NAMES = ("german", "bail", "cora", "pubmed", "facebook", "amazon", "patients")
"""The names that :func:`load` knows."""


def load(name: str, root: str | os.PathLike[str] | None = None, seed: int = 0) -> "Data":
    r"""Load a graph for node classification.

    =========== =============================================== ============ ===============================
    name        nodes                                           sensitive    files below ``root``
    =========== =============================================== ============ ===============================
    "german"    1,000 bank clients                              Gender       nifty/german: german.csv,
                                                                             german_edges.txt
    "bail"      18,876 defendants                               WHITE        nifty/bail: bail.csv,
                                                                             bail_edges.txt
    "cora"      2,708 papers                                                 planetoid/Cora/raw: ind.cora.\*
    "pubmed"    19,717 papers                                                planetoid/PubMed/raw:
                                                                             ind.pubmed.\*
    "facebook"  22,470 pages                                                 FacebookPagePage/raw:
                                                                             facebook.npz
    "amazon"    1,569,960 products                                           AmazonProducts/raw:
                                                                             adj_full.npz, feats.npy,
                                                                             class_map.json, role.json
    "patients"  569 breast-cancer patients                                   none: it comes with scikit-learn
    =========== =============================================== ============ ===============================

    German and Bail are the files of NIFTY (Agarwal, Lakkaraju & Zitnik, UAI 2021). Cora, PubMed, Facebook and Amazon
    are read by PyG's ``Planetoid``, ``FacebookPagePage`` and ``AmazonProducts`` from the raw files that these expect,
    and downloaded by them where a raw file is missing. Nothing is written into ``root`` except such a download, once
    all of it is there.

    Parameters
    ----------
    name
        One of the names above.
    root
        The folder that holds the files. Default: the environment variable ``CFE_DATA`` where it is set, else ``data``
        in the working directory.
    seed
        Of the split, at least 0.

    Returns
    -------
    torch_geometric.data.Data
        With, for n nodes of d features:

        - ``x``: (n, d) float32, what a model reads. German, Bail: each column scaled to [0, 1]. Patients: each column
          standardised, because similarities of features that are all positive crowd near 1. Others: as PyG gives them.
        - ``x_raw``: (n, d) float32, the features in their own units; where ``x`` is not scaled, the same tensor.
        - ``feature_names``: d names. Only German, Bail and Patients have names of their own.
        - ``y``: (n,) int64, the true class, an index into ``class_names``.
        - ``class_names``: a readable name of each class; "class 0" and so on where the files do not settle them.
        - ``edge_index``: (2, E) int64, both directions of every edge. German, Bail and Patients: sorted, no self-loop,
          none twice. Others: exactly PyG's, whose E is the paper's count; Facebook's has self-loops.
        - ``train_mask``, ``val_mask``, ``test_mask``: (n,) bool, :func:`cfe_faiss.datasets.split.split_masks` of the
          seed: half, a quarter, a quarter of every class, as in NIFTY. It replaces the split that PyG gives.
        - ``sensitive``: (n,) int64, 0 or 1, and ``sensitive_name``; only where there is a sensitive attribute.
        - ``name``: the name it was loaded by.

    Raises
    ------
    TypeError
        If the seed is not an integer.
    ValueError
        If the name is unknown, the seed negative, or a file does not hold what it should.
    FileNotFoundError
        If files are missing and cannot be downloaded; it says which, where to put them and where they come from.
    ImportError
        If torch, PyG or pandas is missing.

    Notes
    -----
    - German: the class is GoodCustomer, 1 or -1 in the file, 1 or 0 here; Gender is 1 for Female, 0 for Male;
      PurposeOfLoan and OtherLoansAtStore (one value only) are dropped, as in NIFTY, which leaves 27 features.
    - Bail: the class is RECID; 18 features, AGE and TIME in months.
    - Amazon: a product may have several of the 107 categories; its class is the first of them (0 where it has none),
      since the paper has one label per node. The arrays take 6.8 GB: edge_index alone has 2 x 264,339,468 int64.
      PyG writes a copy of that size into the temporary folder, which is removed again.
    - Patients: every patient is joined to the 5 nearest others by Euclidean distance of the standardised features.

    Examples
    --------
    >>> data = load("patients")
    >>> data.x.shape, data.class_names
    (torch.Size([569, 30]), ['malignant', 'benign'])
    >>> data.feature_names[3], float(data.x_raw[0, 3])
    ('mean area', 1001.0)
    """
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}")
    seed = as_count("seed", seed, 0)
    folder = root_folder(root)

    # Imported here because they load torch, which takes seconds.
    data: Any
    if name in ("german", "bail", "patients"):
        from cfe_faiss.datasets import tabular

        data = tabular.patients() if name == "patients" else tabular.nifty(name, folder)
    else:
        from cfe_faiss.datasets import pyg

        data = pyg.read(name, folder)
    from cfe_faiss.datasets.split import split_masks

    data.name = name
    data.train_mask, data.val_mask, data.test_mask = split_masks(data.y, seed)
    return data


__all__ = ["NAMES", "load"]
