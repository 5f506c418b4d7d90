import itertools
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from sklearn.datasets import load_breast_cancer
from sklearn.neighbors import kneighbors_graph
from sklearn.preprocessing import scale

import cfe_faiss as cfe
from cfe_faiss.plot import evidence_figure

STAR = SimpleNamespace(
    x=[[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]], edge_index=[[0, 0], [1, 2]]
)


def texts(figure):
    return [
        text.get_text() for text in figure.findobj(Text) if text.get_text() and text.get_visible()
    ]


def panels(figure):
    """The axes of the two neighbourhoods: those with the edges' collections."""
    return [axes for axes in figure.axes if axes.collections]


def drawn(panel):
    """Number -> (x, y, marker, colour, edge width) of the nodes drawn around the one in the middle."""
    ring = {}
    numbers = [text.get_text() for text in panel.texts if text.get_text().isdigit()]
    for number, line in zip(numbers, panel.lines, strict=True):
        (x,), (y,) = line.get_xdata(), line.get_ydata()
        ring[int(number)] = (x, y, line.get_marker(), line.get_color(), line.get_markeredgewidth())
    return ring


def assert_clear(figure):
    """Check that every text is inside of the figure, and that no two texts overlap."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    # ticks beyond the end of an axis are placed but not drawn
    ticks = {
        id(label)
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for label in axis.get_ticklabels()
    }
    shown = [
        text
        for text in figure.findobj(Text)
        if text.get_text() and text.get_visible() and id(text) not in ticks
    ]
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in shown]
    for text, box in boxes:
        assert min(box.x0, box.y0) >= 0, text
        assert box.x1 <= figure.bbox.width, text
        assert box.y1 <= figure.bbox.height, text
    level = [box for box, text in zip(boxes, shown, strict=True) if text.get_rotation() == 0]
    for (one, first), (other, second) in itertools.combinations(level, 2):
        assert not first.overlaps(second), (one, other)


@pytest.fixture(scope="module")
def patients():
    table = load_breast_cancer()
    x = scale(table.data)
    edges = kneighbors_graph(x, 5).tocoo()
    return SimpleNamespace(
        x=x,
        x_raw=table.data,
        edge_index=np.stack([edges.row, edges.col]),
        y=table.target,
        feature_names=list(table.feature_names),
        class_names=list(table.target_names),
    )


def test_patients(patients, tmp_path):
    figure = evidence_figure(patients, 5, 81, patients.y, similarity=0.91704)
    assert type(figure) is Figure
    words = texts(figure)
    for expected in (
        "KS similarity 0.917040",
        "Node 5",
        "Node 81",
        "Predicted class: malignant",
        "True class: benign",
        "mean smoothness",
        "0.1278",
        "0.1078",
        "−1.42",
    ):
        assert expected in words
    assert_clear(figure)
    figure.savefig(tmp_path / "pair.png")
    assert (tmp_path / "pair.png").stat().st_size > 10_000


def test_nodes_carry_colour_and_shape_of_their_predicted_class(patients):
    predicted = 1 - patients.y  # the wrong way round: the true class must not matter
    left, right = panels(evidence_figure(patients, 5, 81, predicted, max_neighbors=50))
    nodes = drawn(left) | drawn(right)
    looks = {label: {nodes[v][2:4] for v in nodes if predicted[v] == label} for label in (0, 1)}
    assert [len(looks[label]) for label in (0, 1)] == [1, 1]
    (marker, colour), (other_marker, other_colour) = looks[0].pop(), looks[1].pop()
    assert marker != other_marker
    assert colour != other_colour


def test_neighbourhoods_are_those_of_the_graph(patients):
    edges = patients.edge_index
    left, right = panels(evidence_figure(patients, 5, 81, patients.y, max_neighbors=50))
    near = {
        v: {*edges[1][edges[0] == v].tolist(), *edges[0][edges[1] == v].tolist()} for v in (5, 81)
    }
    assert set(drawn(left)) == near[5] | {5}
    assert set(drawn(right)) == near[81] | {81}
    assert drawn(left)[5][:2] == drawn(right)[81][:2] == (0, 0)
    thick = {v for v, look in drawn(left).items() if look[4] > 2}
    assert thick == near[5] & (near[81] | {81})
    chords = left.collections[0].get_paths()
    inside = {tuple(sorted(pair)) for pair in edges.T.tolist() if set(pair) <= near[5]}
    assert len(chords) == len(inside) > 0
    place = {v: np.array(look[:2]) for v, look in drawn(left).items()}
    ends = {frozenset((tuple(path.vertices[0]), tuple(path.vertices[-1]))) for path in chords}
    assert ends == {frozenset((tuple(place[a]), tuple(place[b]))) for a, b in inside}


def test_hub_is_cut_to_the_shared_neighbours_and_the_first_others():
    n = 4000
    hub = np.stack([np.zeros(n - 2, int), np.arange(2, n)])
    other = [[1, 1, 1], [3900, 3000, 2]]
    data = SimpleNamespace(
        x=np.arange(n)[:, None] % 7, edge_index=np.concatenate([hub, other], axis=1)
    )
    labels = np.arange(n) % 2
    figure = evidence_figure(data, 0, 1, labels, max_neighbors=5)
    left, right = panels(figure)
    assert set(drawn(left)) == {0, 2, 3000, 3900, 3, 4}
    assert set(drawn(right)) == {1, 2, 3000, 3900}
    assert "3,998 neighbours, 1,999 predicted class 0\n(+3,993 more, not drawn)" in texts(figure)
    assert "3 neighbours, 0 predicted class 1" in texts(figure)
    assert_clear(figure)


def test_neighbours_of_one_class_stand_together():
    n = 9
    data = SimpleNamespace(x=np.arange(n)[:, None], edge_index=[[0] * 7, list(range(2, 9))])
    left, _ = panels(evidence_figure(data, 0, 1, [0, 1, 0, 1, 0, 1, 0, 1, 0]))
    # in the order around the ring, the node itself last
    assert list(drawn(left)) == [2, 4, 6, 8, 3, 5, 7, 0]


def test_node_without_neighbours_and_without_anything_optional():
    figure = evidence_figure(STAR, 0, 3, [0, 1, 1, 1])
    assert set(drawn(panels(figure)[1])) == {3}
    words = texts(figure)
    assert "no neighbours" in words
    assert "feature 0" in words
    assert "1 of 2 differ" in words
    assert not [word for word in words if "True class" in word or "KS similarity" in word]
    assert_clear(figure)


def test_unknown_true_class_is_left_out():
    data = SimpleNamespace(**vars(STAR), y=[-1, 1, 0, 0], class_names=["no", "yes"])
    words = texts(evidence_figure(data, 0, 1, [0, 1, 1, 1]))
    assert [word for word in words if "True class" in word] == ["True class: yes"]


def test_same_features():
    data = SimpleNamespace(x=[[1.0], [1.0], [2.0]], edge_index=[[0, 1], [2, 2]])
    figure = evidence_figure(data, 0, 1, [0, 1, 0])
    assert "The two nodes have the same features" in texts(figure)
    assert_clear(figure)


@pytest.mark.parametrize(
    ("classes", "max_neighbors"), [(9, 12), pytest.param(30, 14, marks=pytest.mark.slow), (200, 24)]
)
def test_many_classes_with_long_names(classes, max_neighbors):
    rng = np.random.default_rng(classes)
    n, first = 1_000_040, 1_000_000
    ring = np.arange(first + 2, first + 34)
    edges = [np.stack([np.full(32, hub), ring]) for hub in (first, first + 1)]
    data = SimpleNamespace(
        x=rng.random((n, 2), dtype=np.float32),
        edge_index=np.concatenate(edges, axis=1),
        feature_names=["income in $ of the whole household of the applicant, per_year", "$x_1"],
        class_names=[f"an unreasonably long name $_ of class number {i}" for i in range(classes)],
    )
    labels = np.zeros(n, dtype=int)
    labels[first : first + 34] = rng.permutation(np.arange(34) % classes)
    labels[[first, first + 1]] = [classes - 2, classes - 1]
    figure = evidence_figure(
        data, first, first + 1, labels, similarity=1.0, max_neighbors=max_neighbors
    )
    assert_clear(figure)
    nodes = {**drawn(panels(figure)[0]), **drawn(panels(figure)[1])}
    looks = {(labels[v], look[2], look[3]) for v, look in nodes.items()}
    shown = {label for label, _, _ in looks}
    assert len(looks) == len({look[1:] for look in looks}) == len(shown)
    legend = figure.findobj(lambda artist: type(artist).__name__ == "Legend")[0]
    assert len(legend.get_texts()) == len(shown) + 1  # and one that explains the thick outline


def test_figure_leaves_matplotlib_as_it_was():
    code = (
        "import sys, cfe_faiss.plot as plot\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from types import SimpleNamespace\n"
        "plot.evidence_figure(SimpleNamespace(x=[[1.], [2.]], edge_index=[[0], [1]]), 0, 1, [0, 1])\n"
        "assert 'matplotlib.figure' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "cfe-faiss\[plot\]"'):
        evidence_figure(STAR, 0, 1, [0, 1, 1, 1])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"source": 4}, ValueError, r"source must lie in 0\.\.3, got 4"),
        ({"target": -1}, ValueError, "target must be at least 0, got -1"),
        ({"target": "1"}, TypeError, "target must be an integer"),
        ({"target": 0}, ValueError, "different classes, got class 0 for both"),
        ({"labels": [0, 1]}, ValueError, r"labels must have shape \(4,\)"),
        ({"labels": [0.0, 1.0, 1.0, 1.0]}, TypeError, "labels must be integers"),
        ({"similarity": float("nan")}, ValueError, "similarity must lie in"),
        ({"max_neighbors": 0}, ValueError, "max_neighbors must be at least 1, got 0"),
        ({"features": 0}, ValueError, "features must be at least 1, got 0"),
        ({"data": SimpleNamespace(**vars(STAR), y=[0, 1])}, ValueError, r"data\.y must have shape"),
        ({"data": SimpleNamespace(**vars(STAR), feature_names=["a"])}, ValueError, "must hold 2"),
    ],
)
def test_faults(change, error, message):
    arguments = {"data": STAR, "source": 0, "target": 1, "labels": [0, 1, 1, 1]} | change
    with pytest.raises(error, match=message):
        evidence_figure(**arguments)


def test_a_pair_of_a_table() -> None:
    people = {"income": [30.0, 31.0, 50.0], "sex": ["f", "m", None], "town": ["a", "a", "b"]}
    X = [[0.0], [0.1], [5.0]]
    finder = cfe.EvidenceFinder.from_vectors(
        X, ["no", "yes", "no"], features=people, ids=["ann", "ben", "cem"], metric="l2"
    )
    found = texts(finder.top_pairs(2).plot(0))
    assert found[:2] == ["Rows ann and ben: similar, yet predicted differently", "distance 0.1"]
    assert {"sex", "f", "m", "income", "30", "31", "+0.11", "2 of 3 differ"} <= set(found)
    assert "town" not in found
    expected = texts(finder.local(["ben", "cem"], k=2).plot(1, rank=1))
    assert texts(finder.local(["cem"], k=1).plot()) == expected
    assert "unknown" in texts(finder.local(["cem"], k=1).plot())
    for wrong in ({"i": 1}, {"rank": 2}, {"rank": 0}):
        with pytest.raises(ValueError, match="must"):
            finder.local(["cem"], k=1).plot(**wrong)


def test_a_pair_of_a_graph() -> None:
    class Data:
        x = np.array([[1.0, 0.0], [0.9, 0.1], [0.2, 0.8]], np.float32)
        edge_index = np.array([[0, 1], [2, 2]])
        class_names = ("no", "yes")

    finder = cfe.EvidenceFinder.from_data(Data, [0, 1, 1], features={"a": [1.0, 2.0, 3.0]})
    found = texts(finder.top_pairs(1).plot())
    assert found[0].startswith("Nodes 0 and ")
    assert "1 neighbour, 0 predicted no" in found


def test_a_pair_without_attributes_has_no_picture() -> None:
    finder = cfe.EvidenceFinder.from_vectors([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    with pytest.raises(ValueError, match="plot needs"):
        finder.top_pairs(1).plot()
