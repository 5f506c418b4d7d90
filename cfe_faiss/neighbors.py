"""Evidence search as a scikit-learn estimator.

The module loads scikit-learn, so it is imported at first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, Self, get_args

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix, issparse
from sklearn import get_config
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
    is_classifier,
)
from sklearn.utils import assert_all_finite, gen_batches, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from cfe_faiss.base.checks import (
    Array,
    Doubles,
    Floats,
    Ints,
    as_count,
    as_number,
    check_known,
    check_shape,
)
from cfe_faiss.base.threads import limit_faiss_threads
from cfe_faiss.base.values import as_values, group_numbers
from cfe_faiss.finder import empty_index
from cfe_faiss.rows import metric as metrics
from cfe_faiss.search.query import Effort

_BLOCK = 1 << 24
"""Numbers per block of rows from the index or from a sparse matrix: 64 MiB."""

_ROUNDING = 1e-6
"""Reserve for rounding by which the threshold of the range search is lower."""

_KINDS = {
    frozenset({str}): "strings",
    frozenset({bool}): "booleans",
    frozenset({int, float}): "numbers",
}

Mode = Literal["connectivity", "distance"]
Metric = Literal[metrics.Metric, "euclidean", "sqeuclidean"]


class EvidenceNeighbors(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Nearest samples of other classes, as ``sklearn.neighbors.NearestNeighbors`` has it.

    It returns the counterfactual evidence of a query: the most similar fitted samples that a
    classifier puts in other classes. The predicted classes are the arguments ``y`` and ``labels``,
    or come from ``estimator``.

    Parameters
    ----------
    n_neighbors
        Neighbours returned for each query by default, >= 1.
    radius
        Largest distance of :meth:`radius_neighbors` by default, >= 0 except for "ip".
    index
        Description of the index for :func:`cfe_faiss.index_factory`: ``"EvidenceFlat"`` is exact,
        ``"EvidenceIVF<nlist>,Flat"`` approximate and faster for many samples. None: exact up to
        100,000 samples and ``"EvidenceIVF<2 sqrt(n_samples)>,Flat"`` above.
    nprobe
        Number of lists to probe for each query, >= 1; None for the default of the index. ValueError
        for an exact index.
    recall, exact
        In place of ``nprobe``: the recall@k wanted, in (0, 1]; or True for exact results of any
        index.
    memory
        Bytes for copies of vectors where many queries are searched; None for 2 GiB.
    estimator
        The classifier to explain. ``fit`` fits a clone of it to ``X, y``, and its predictions are
        the labels of samples and queries. Pass a fitted classifier as
        ``sklearn.frozen.FrozenEstimator(classifier)``. None: the predictions are arguments.
    neighbors
        ``"other"`` for samples of other classes. ``"any"`` for all samples, as ``NearestNeighbors``
        does: without labels and ``estimator``, and with ``y`` ignored.
    metric
        ``"cosine"``: 1 - cosine similarity. ``"euclidean"``: the Euclidean distance.
        ``"sqeuclidean"`` or FAISS's name ``"l2"``: its square. ``"ip"``: minus the inner product.
        ``"tanimoto"``: 1 - Tanimoto similarity of rows of 0 and 1 ("jaccard" in scikit-learn).
        Samples are normalised for "cosine" only.
    n_jobs
        Number of threads of a search; None for the setting of FAISS, -1 for all processors.

    Attributes
    ----------
    classes_
        The distinct labels seen in ``fit``, (n_classes,), ascending.
    estimator_
        The fitted classifier; None without ``estimator``.
    index_
        Evidence index of the samples: ids are rows of ``X``, labels are positions in ``classes_``.
    effective_metric_, effective_neighbors_
        ``metric`` and ``neighbors`` of ``fit``: other ones have an effect at the next ``fit``.
    n_features_in_
        Number of features seen in ``fit``.
    feature_names_in_
        Names of the features, ``(n_features_in_,)``; only if all names in ``X`` are strings.
    n_samples_fit_
        Number of samples in the fitted data.

    Notes
    -----
    Distances are float64, of samples in float32. Cosine distances lie in [0, 2] and are accurate to
    1e-6. A zero sample has distance 1 to every sample. Scale features of different units first, as
    for any distance.

    ``X`` may be a SciPy sparse matrix or array of any format in every method; the results equal
    those for dense ``X``. The index holds dense vectors: ``4 * n_samples * n_features`` bytes for
    ``"EvidenceFlat"``, about twice as much during ``fit``. Other dense copies are blocks of 64 MiB,
    and training rows of an inverted file, at most 256 per list. Reduce texts with many thousands of
    terms first, for example with ``TruncatedSVD``.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> X = [[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1]]
    >>> neighbors = cfe.EvidenceNeighbors(n_neighbors=2).fit(X, ["good", "good", "bad", "bad"])
    >>> distances, indices = neighbors.kneighbors()
    >>> indices
    array([[2, 3],
           [2, 3],
           [1, 0],
           [1, 0]])
    >>> distances[0].round(2)
    array([0.4, 1. ])
    >>> neighbors.kneighbors([[1, 1]], 1, return_distance=False, labels=["bad"])
    array([[1]])

    With the classifier inside, as the last step of a pipeline:

    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> evidence = cfe.EvidenceNeighbors(n_neighbors=1, estimator=LogisticRegression())
    >>> pipeline = make_pipeline(StandardScaler(), evidence).fit(X, ["good", "good", "bad", "bad"])
    >>> pipeline.transform([[1, 0.2], [0.4, 0.5]]).round(3)
    array([[1.707],
           [1.124]])
    """

    def __init__(  # noqa: PLR0913
        self,
        n_neighbors: int = 10,
        *,
        radius: float = 0.1,
        index: str | None = "EvidenceFlat",
        nprobe: int | None = None,
        recall: float | None = None,
        exact: bool = False,
        memory: int | None = None,
        estimator: Any = None,
        neighbors: Literal["other", "any"] = "other",
        metric: Metric = "cosine",
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.radius = radius
        self.index = index
        self.nprobe = nprobe
        self.recall = recall
        self.exact = exact
        self.memory = memory
        self.estimator = estimator
        self.neighbors = neighbors
        self.metric = metric
        self.n_jobs = n_jobs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self.neighbors != "any"
        tags.input_tags.sparse = True
        if self.estimator is not None:
            classifier = get_tags(self.estimator)
            tags.target_tags.required = classifier.target_tags.required
            tags.input_tags.sparse = classifier.input_tags.sparse
        tags.transformer_tags.preserves_dtype = []  # distances are float64 for any X
        return tags

    def get_metadata_routing(self) -> Any:
        """Return the routing of metadata: ``labels``, and ``fit_params`` of the classifier.

        Returns
        -------
        routing
            A ``sklearn.utils.metadata_routing.MetadataRouter``.
        """
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        return (
            router
            if self.estimator is None
            else router.add(estimator=self.estimator, method_mapping=to_fit)
        )

    def fit(self, X: Any, y: ArrayLike | None = None, **fit_params: Any) -> Self:
        """Store the samples with their labels.

        Parameters
        ----------
        X
            Samples, (n_samples, n_features), dense or sparse and finite in float32. They are
            copied, and normalised for metric "cosine".
        y
            Without ``estimator`` the labels, (n_samples,): the class that a model predicts for each
            sample, as numbers or strings. With ``estimator`` the true classes for its ``fit``.
        **fit_params
            Other arguments of the ``fit`` of ``estimator``, such as ``sample_weight``.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter of the constructor is not as described, or there are too
            few samples to train the index.
        """
        self._check_parameters(fit_params)
        classifier: Any = None
        if self.estimator is not None:
            if get_config()["enable_metadata_routing"]:
                fit_params = process_routing(self, "fit", **fit_params).estimator.fit
            classifier = clone(self.estimator).fit(X, y, **fit_params)
            y = classifier.predict(X)
        if self.neighbors == "any":
            samples = validate_data(self, X, accept_sparse="csr", dtype=np.float32)
            targets = np.zeros(samples.shape[0], np.int64)
        else:
            samples, targets = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32)
            check_classification_targets(targets)
        classes, labels = np.unique(targets, return_inverse=True)
        n, d = samples.shape
        index = empty_index(self.index, n, d, _index_metric(self.metric))
        if not index.is_trained:
            index.train(_training_rows(samples, index))
        for rows in _blocks(samples):
            index.add_with_labels(_dense(samples[rows]), labels[rows])
        self.classes_ = classes
        self.estimator_ = classifier
        self.index_ = index
        self.n_samples_fit_ = len(targets)
        self.effective_metric_ = self.metric
        self.effective_neighbors_ = self.neighbors
        return self

    def _effort(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("nprobe", "recall", "exact", "memory")}

    def _check_parameters(self, fit_params: dict[str, Any]) -> None:
        if not (self.index is None or isinstance(self.index, str)):
            raise TypeError(f"index must be a description or None, got {self.index!r}")
        as_count("n_neighbors", self.n_neighbors)
        metrics.as_metric("metric", _index_metric(self.metric))
        as_number("radius", self.radius, _least_distance(self.metric), np.inf)
        Effort.of(*self._effort().values())
        check_known("neighbors must be one of", self.neighbors, ("other", "any"))
        if self.neighbors == "any" and self.estimator is not None:
            raise ValueError(f'estimator must be None with neighbors="any", got {self.estimator!r}')
        if self.estimator is None and fit_params:
            raise TypeError(
                f"fit takes {', '.join(fit_params)} only for an estimator, got estimator=None"
            )
        if self.estimator is not None and not is_classifier(self.estimator):
            raise TypeError(f"estimator must be a classifier, got {self.estimator!r}")

    def kneighbors(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        return_distance: bool = True,
        *,
        labels: ArrayLike | None = None,
    ) -> Any:
        """Return the nearest fitted samples of other classes than the query's.

        Parameters
        ----------
        X
            Queries, (n_queries, n_features), dense or sparse; by default all fitted samples with
            their labels.
        n_neighbors
            Neighbours per query, >= 1; by default the ``n_neighbors`` of the constructor.
        return_distance
            Whether to return the distances as well.
        labels
            Class that the model predicts for each query, (n_queries,), as numbers or strings like
            in ``fit``; for ``X`` only. Default: the predictions of ``estimator``, without which
            they are required. For a label that ``fit`` has not seen, all samples are of other
            classes.

        Returns
        -------
        distances
            Floats, (n_queries, n_neighbors) float64, ascending, padded with infinity if fewer
            samples than ``n_neighbors`` are of other classes. Missing if ``return_distance`` is
            False.
        indices
            Rows of the fitted ``X``, (n_queries, n_neighbors) int64; ties: smaller index first.
            Padding is -1.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        TypeError, ValueError
            If an argument is not as described.
        """
        check_is_fitted(self, "index_")
        k = as_count("n_neighbors", self.n_neighbors if n_neighbors is None else n_neighbors)
        options = self._effort()
        with _threads(self.n_jobs):
            if X is None:
                _check_no_labels(labels)
                D, I = self.index_.search_stored(
                    None, k, neighbors=self.effective_neighbors_, **options
                )
            else:
                blocks = self._queries(X, labels)
                found = [
                    self.index_.search_evidence(x, codes, k, **options) for x, codes, _ in blocks
                ]
                D, I = (np.concatenate(part) for part in zip(*found, strict=True))
        return (self._distances(D, I), I) if return_distance else I

    def kneighbors_graph(
        self,
        X: Any = None,
        n_neighbors: int | None = None,
        mode: Mode = "connectivity",
        *,
        labels: ArrayLike | None = None,
    ) -> csr_matrix:
        """Return the nearest fitted samples of other classes as a sparse graph.

        Parameters
        ----------
        X, n_neighbors, labels
            As in :meth:`kneighbors`.
        mode
            ``"connectivity"``: entries are 1. ``"distance"``: entries are distances; 0 is stored
            explicitly.

        Returns
        -------
        graph
            CSR matrix, (n_queries, n_samples_fit), float64, with 32-bit indices where they fit; the
            entries of a row by ascending distance. A row has fewer than ``n_neighbors`` entries if
            fewer samples are of other classes.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        TypeError, ValueError
            If an argument is not as described.

        Examples
        --------
        >>> import cfe_faiss as cfe
        >>> X = [[1, 0], [0.6, 0.8], [0, 1]]
        >>> neighbors = cfe.EvidenceNeighbors(1).fit(X, ["good", "bad", "bad"])
        >>> neighbors.kneighbors_graph(mode="distance").toarray().round(2)
        array([[0. , 0.4, 0. ],
               [0.4, 0. , 0. ],
               [1. , 0. , 0. ]])
        """
        check_known("mode must be one of", mode, get_args(Mode))
        distances, indices = self.kneighbors(X, n_neighbors, labels=labels)
        found = indices >= 0
        lims = np.concatenate(([0], np.cumsum(found.sum(axis=1))))
        return self._graph(lims, distances[found], indices[found], mode)

    def radius_neighbors(
        self,
        X: Any = None,
        radius: float | None = None,
        return_distance: bool = True,
        *,
        labels: ArrayLike | None = None,
    ) -> tuple[NDArray[np.object_], NDArray[np.object_]] | NDArray[np.object_]:
        """Return all fitted samples of other classes within a distance of the query.

        It compares all samples, so it is exact with every index. Time grows with n_queries times
        n_samples_fit.

        Parameters
        ----------
        X, labels
            As in :meth:`kneighbors`.
        radius
            Largest distance, >= 0 except for "ip", inclusive; by default the ``radius`` of the
            constructor.
        return_distance
            Whether to return the distances as well.

        Returns
        -------
        distances
            Array of objects, (n_queries,): the distances of each query, float64, ascending. Missing
            if ``return_distance`` is False.
        indices
            Array of objects, (n_queries,): rows of the fitted ``X``, int64, in the same order;
            ties: smaller index first.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        TypeError, ValueError
            If an argument is not as described.

        Examples
        --------
        >>> import cfe_faiss as cfe
        >>> X = [[1, 0], [0.6, 0.8], [0, 1]]
        >>> neighbors = cfe.EvidenceNeighbors(radius=0.5).fit(X, ["good", "bad", "bad"])
        >>> neighbors.radius_neighbors(return_distance=False).tolist()
        [array([1]), array([0]), array([], dtype=int64)]
        """
        lims, distances, indices = self._within(X, labels, radius)
        rows = _per_query(lims, indices)
        return (_per_query(lims, distances), rows) if return_distance else rows

    def radius_neighbors_graph(
        self,
        X: Any = None,
        radius: float | None = None,
        mode: Mode = "connectivity",
        *,
        labels: ArrayLike | None = None,
    ) -> csr_matrix:
        """Return all samples of other classes within a distance of the query as a sparse graph.

        Parameters
        ----------
        X, radius, labels
            As in :meth:`radius_neighbors`.
        mode
            As in :meth:`kneighbors_graph`.

        Returns
        -------
        graph
            As from :meth:`kneighbors_graph`.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        TypeError, ValueError
            If an argument is not as described.
        """
        check_known("mode must be one of", mode, get_args(Mode))
        return self._graph(*self._within(X, labels, radius), mode)

    def transform(self, X: Any, labels: ArrayLike | None = None) -> Any:
        """Return the distances to the nearest samples of other classes as features.

        Parameters
        ----------
        X, labels
            As in :meth:`kneighbors`. In a pipeline ``labels`` are metadata: request them with
            ``set_transform_request(labels=True)``. With ``estimator`` they are not needed.

        Returns
        -------
        distances
            (n_queries, n_neighbors) float64, ascending, padded with infinity. A frame after
            ``set_output``.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        TypeError, ValueError
            If an argument is not as described.
        """
        check_is_fitted(self, "index_")
        if X is None:
            raise ValueError("X must be given: kneighbors() searches the fitted samples")
        return self.kneighbors(X, labels=labels)[0]

    @available_if(lambda self: self.estimator is not None)  # type: ignore[untyped-decorator]
    def predict(self, X: Any) -> Any:
        """Return the classes that ``estimator`` predicts, (n_queries,).

        Without ``estimator`` there is no such method.

        Parameters
        ----------
        X
            Queries, as in :meth:`kneighbors`.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        """
        check_is_fitted(self, "index_")
        return self.estimator_.predict(X)

    def fit_transform(self, X: Any, y: ArrayLike | None = None, **fit_params: Any) -> Any:
        """Fit the samples and return their distances to the nearest samples of other classes.

        Parameters
        ----------
        X, y, **fit_params
            As in :meth:`fit`.

        Returns
        -------
        distances
            As from :meth:`transform` for ``X`` with the fitted labels. With ``neighbors="any"``,
            the first neighbour of a sample is itself.

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter of the constructor is not as described.
        """
        fitted = self.fit(X, y, **fit_params)
        return fitted.transform(X) if self.neighbors == "any" else fitted.kneighbors()[0]

    @property
    def _n_features_out(self) -> int:
        check_is_fitted(self, "index_")
        return self.n_neighbors

    def _queries(
        self, X: Any, labels: ArrayLike | None
    ) -> Iterator[tuple[Floats, Ints, Ints | None]]:
        """Yield blocks of queries: dense vectors, encoded labels, and their own samples, (m, 1)."""
        if X is None:
            _check_no_labels(labels)
            ids = np.arange(self.n_samples_fit_)
            fitted = self.index_.members().labels + (self.effective_neighbors_ == "any")
            for rows in gen_batches(len(ids), max(1, _BLOCK // self.n_features_in_)):
                yield self.index_.reconstruct_batch(ids[rows]), fitted[rows], ids[rows, None]
            return
        queries = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        if self.effective_neighbors_ == "any":
            _check_no_labels(labels, 'neighbors="other"')
            codes = np.full(queries.shape[0], len(self.classes_))  # a class without samples
        else:
            if labels is None:
                if self.estimator_ is None:
                    raise ValueError(
                        "labels must be given with X: the predicted class of each query, got None"
                    )
                labels = self.estimator_.predict(X)
            codes = self._encode(labels, queries.shape[0])
        for rows in _blocks(queries):
            yield _dense(queries[rows]), codes[rows], None

    def _encode(self, labels: ArrayLike, n: int) -> Ints:
        """Return the position of each label in ``classes_``, or len(classes_) if unknown."""
        array = as_values("labels", labels)
        check_shape("labels", array, (n,), "one label per query")
        assert_all_finite(np.asarray(labels), input_name="labels")
        fitted_kinds = set(map(type, as_values("classes_", self.classes_[:1]).tolist()))
        types, words = next(kind for kind in _KINDS.items() if fitted_kinds <= kind[0])
        # Texts for numbers ("1" for 1) would all be unknown, and a search would return samples of
        # the query's class.
        if not set(map(type, array.tolist())) <= types:
            raise TypeError(f"labels must be {words} as in fit, got {array.tolist()[:8]}")
        fitted, asked = group_numbers(
            ("classes_", self.classes_, len(self.classes_)), ("labels", array, n)
        )
        codes = np.full(n + len(fitted), len(fitted))
        codes[fitted] = np.arange(len(fitted))
        return codes[asked]

    def _within(
        self, X: Any, labels: ArrayLike | None, radius: float | None
    ) -> tuple[Ints, Doubles, Ints]:
        """Return lims, distances and indices of the samples within a distance, as FAISS."""
        check_is_fitted(self, "index_")
        metric = self.effective_metric_
        most = as_number(
            "radius", self.radius if radius is None else radius, _least_distance(metric), np.inf
        )
        threshold = most * most * (1 + _ROUNDING) if metric == "euclidean" else most
        index_metric = _index_metric(metric)
        if not metrics.is_distance(index_metric):
            reserve = _ROUNDING if _least_distance(metric) == 0 else 0.0
            threshold = metrics.dissimilarity(most, index_metric) - reserve
        counts = []
        distances = []
        indices = []
        for vectors, codes, itself in self._queries(X, labels):
            with _threads(self.n_jobs):
                lims, D, I = self.index_.range_search_evidence(
                    vectors, codes, threshold, exclude=itself
                )
            found = self._distances(D, I)
            near = found <= most
            counts.append(np.diff(np.append(0, np.cumsum(near))[lims]))
            distances.append(found[near])
            indices.append(I[near])
        lims = np.append(0, np.cumsum(np.concatenate(counts)))
        return lims, np.concatenate(distances), np.concatenate(indices)

    def _distances(self, D: Floats, I: Ints) -> Doubles:
        index_metric = _index_metric(self.effective_metric_)
        distances = metrics.dissimilarity(D, index_metric).astype(np.float64)
        if self.effective_metric_ == "euclidean":
            distances = np.sqrt(distances)
        return np.where(I < 0, np.inf, distances)

    def _graph(self, lims: Ints, distances: Doubles, indices: Ints, mode: Mode) -> csr_matrix:
        values = distances if mode == "distance" else np.ones_like(distances)
        shape = len(lims) - 1, self.n_samples_fit_
        index_type = np.int32 if max(*shape, len(indices)) <= np.iinfo(np.int32).max else np.int64
        return csr_matrix(
            (values, indices.astype(index_type), lims.astype(index_type)), shape=shape
        )


class EvidenceTransformer(EvidenceNeighbors):
    """Graph of nearest samples, with the interface of ``sklearn.neighbors.KNeighborsTransformer``.

    It computes the neighbours for estimators that take a precomputed graph: ``Isomap``, ``TSNE``,
    ``DBSCAN`` or ``SpectralClustering`` in a pipeline, and the ``transformer=`` of
    ``scanpy.pp.neighbors``.

    Parameters
    ----------
    n_neighbors
        Neighbours of each sample, >= 1. With mode "distance" a row has ``n_neighbors + 1`` entries:
        a fitted sample is the first neighbour of itself, which estimators that take the graph leave
        out.
    mode
        ``"distance"``: entries are distances. ``"connectivity"``: entries are 1, and a row has
        ``n_neighbors`` of them.
    index, nprobe, recall, exact, memory, metric, n_jobs
        As in :class:`EvidenceNeighbors`.
    neighbors
        ``"any"`` for all samples. ``"other"`` for samples of other classes than ``y``: a row then
        has ``n_neighbors`` entries, never the sample itself, and :meth:`transform` needs
        ``labels``.

    Attributes
    ----------
    index_, effective_metric_, effective_neighbors_, n_features_in_, feature_names_in_,
    n_samples_fit_
        As in :class:`EvidenceNeighbors`.

    Examples
    --------
    >>> import cfe_faiss as cfe
    >>> transformer = cfe.EvidenceTransformer(n_neighbors=1)
    >>> transformer.fit_transform([[0.0], [1.0], [3.0]]).toarray()
    array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 2., 0.]])
    """

    def __init__(  # noqa: PLR0913
        self,
        n_neighbors: int = 5,
        *,
        mode: Mode = "distance",
        index: str | None = "EvidenceFlat",
        nprobe: int | None = None,
        recall: float | None = None,
        exact: bool = False,
        memory: int | None = None,
        neighbors: Literal["other", "any"] = "any",
        metric: Metric = "euclidean",
        n_jobs: int | None = None,
    ) -> None:
        super().__init__(
            n_neighbors,
            index=index,
            nprobe=nprobe,
            recall=recall,
            exact=exact,
            memory=memory,
            neighbors=neighbors,
            metric=metric,
            n_jobs=n_jobs,
        )
        self.mode = mode

    def transform(self, X: Any, labels: ArrayLike | None = None) -> csr_matrix:
        """Return the graph of the nearest fitted samples.

        Parameters
        ----------
        X, labels
            As in :meth:`EvidenceNeighbors.transform`.

        Returns
        -------
        graph
            As from :meth:`kneighbors_graph`.

        Raises
        ------
        NotFittedError
            If ``fit`` has not been called.
        TypeError, ValueError
            If an argument is not as described.
        """
        check_is_fitted(self, "index_")
        if X is None:
            raise ValueError("X must be given: kneighbors_graph() searches the fitted samples")
        finds_itself = self.effective_neighbors_ == "any" and self.mode == "distance"
        return self.kneighbors_graph(X, self.n_neighbors + finds_itself, self.mode, labels=labels)

    def fit_transform(self, X: Any, y: ArrayLike | None = None, **fit_params: Any) -> csr_matrix:
        """Fit the samples and return the graph of their nearest samples.

        Parameters
        ----------
        X, y, **fit_params
            As in :meth:`fit`.

        Returns
        -------
        graph
            As from :meth:`transform` for ``X``, with the fitted labels.

        Raises
        ------
        TypeError, ValueError
            If an argument or a parameter of the constructor is not as described.
        """
        fitted = self.fit(X, y, **fit_params)
        return (
            fitted.transform(X)
            if self.neighbors == "any"
            else fitted.kneighbors_graph(mode=self.mode)
        )

    @property
    def _n_features_out(self) -> int:
        check_is_fitted(self, "index_")
        return self.n_samples_fit_


def _index_metric(metric: str) -> Any:
    return "l2" if metric in ("euclidean", "sqeuclidean") else metric


def _least_distance(metric: str) -> float:
    """Return the distance of equal rows; minus infinity where other rows may be nearer."""
    return 0.0 if _index_metric(metric) in get_args(metrics.BoundedMetric) else -np.inf


def _threads(n_jobs: int | None) -> AbstractContextManager[None]:
    return nullcontext() if n_jobs is None else limit_faiss_threads(effective_n_jobs(n_jobs))


def _check_no_labels(
    labels: ArrayLike | None, only: str = "X only: the fitted samples have their own"
) -> None:
    if labels is not None:
        raise ValueError(f"labels must be given with {only}")


def _blocks(X: Any) -> Iterator[slice]:
    """Yield the rows of a matrix in blocks; a dense matrix is one block."""
    n, d = X.shape
    yield from gen_batches(n, max(1, _BLOCK // d) if issparse(X) else n)


def _dense(X: Any) -> Any:
    return X.toarray() if hasattr(X, "toarray") else X


def _training_rows(X: Any, index: Any) -> Any:
    """Return the samples that an inverted file is trained on, dense and few enough."""
    n = X.shape[0]
    if n < index.nlist:
        raise ValueError(f"X must hold a sample per list, {index.nlist}, got n_samples = {n}")
    most = index.nlist * index.cp.max_points_per_centroid
    if not 0 < most < n:
        return _dense(X)
    return _dense(X[np.sort(np.random.default_rng(0).choice(n, most, replace=False))])


def _per_query(lims: Ints, values: Array) -> NDArray[np.object_]:
    rows = np.empty(len(lims) - 1, object)
    rows[:] = np.split(values, lims[1:-1])
    return rows
