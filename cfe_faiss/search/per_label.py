"""Search of each other class by itself."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cfe_faiss.base.values import order_of
from cfe_faiss.rows.metric import make_results
from cfe_faiss.search.query import Effort, Queries, Results, Rules


def search_per_label(queries: Queries, effort: Effort, search: Callable[[Queries, Effort], Results]) -> Results:
    """Return the k best D, I of each other class than the query's, (nq, classes, k).

    ``search`` returns the k best D, I of queries of one class among the rows of this class.
    """
    snapshot, nq, k = queries.snapshot, len(queries), queries.k
    labels = snapshot.class_counts[0]
    flat_D, flat_I = make_results(nq, len(labels) * k)
    D = flat_D.reshape(nq, len(labels), k)
    I = flat_I.reshape(nq, len(labels), k)
    rules = (queries.rules or Rules())._replace(neighbors="own", per_label=False)
    for place, label in enumerate(labels.tolist()):
        chosen = np.flatnonzero(queries.labels != label)
        of_class = replace(queries, labels=np.full(nq, label, np.int32), rules=rules).subset(chosen)
        D[chosen, place], I[chosen, place] = search(of_class, effort)
    order = order_of(snapshot.decode(labels))  # codes need not be in the order of the labels
    return D.take(order, axis=1), I.take(order, axis=1)
