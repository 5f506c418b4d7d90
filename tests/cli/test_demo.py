import io
import re
from argparse import Namespace
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from cfe_faiss import Constraints, EvidenceFinder
from cfe_faiss.base.text import format_similarity
from cfe_faiss.cli.build import run_demo
from cfe_faiss.datasets import load
from cfe_faiss.models import gcn, train
from cfe_faiss.plot import class_name, differing_features, format_value

CARD = re.compile(r"Pair (\d+), similarity (\S+) +node (\d+) +node (\d+)\n((?:  .*\n)+)")


def show(folder: Path, dataset: str = "patients", root: Path | None = None, **options) -> str:
    given = {"pairs": 3, "nodes": "test", "out": folder, "seed": 0, "overwrite": False} | options
    with redirect_stdout(io.StringIO()) as output:
        run_demo(Namespace(dataset=dataset, data_root=root, **given))
    return output.getvalue()


def expected(nodes, seed):
    data = load("patients", None, seed)
    model = gcn(data, seed=seed)
    report = train(model, data, seed=seed)
    finder = EvidenceFinder.from_data(
        data, model, nodes=data.test_mask if nodes == "test" else None, features={"true": data.y}
    )
    pairs = finder.top_pairs(3, where=Constraints(exact="true"))
    return SimpleNamespace(data=data, report=report, finder=finder, pairs=pairs)


def cards(text):
    """The pairs of the table, with the lines below each as (name, value, value)."""
    return [
        SimpleNamespace(
            rank=int(rank),
            similarity=similarity,
            source=int(source),
            target=int(target),
            lines=[tuple(re.split(r" {2,}", line.strip())) for line in lines.splitlines()],
        )
        for rank, similarity, source, target, lines in CARD.findall(text)
    ]


def classes_of(data, pairs, labels, rank):
    return [
        class_name(data, int(labels[node])) for node in (pairs.source[rank], pairs.target[rank])
    ]


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The text of a demo, and the folder of its picture."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "folder"
    return show(folder), folder


@pytest.mark.parametrize(("nodes", "seed"), [("test", 0), ("all", 1)])
def test_text_holds_the_results_of_the_api(shown, tmp_path, nodes, seed):
    text = shown[0] if nodes == "test" else show(tmp_path, nodes=nodes, seed=seed)
    true = expected(nodes=nodes, seed=seed)
    pairs = cards(text)
    assert [card.rank for card in pairs] == [1, 2, 3]
    assert [card.source for card in pairs] == true.pairs.source.tolist()
    assert [card.target for card in pairs] == true.pairs.target.tolist()
    answer = [card.similarity for card in pairs]
    assert answer == [format_similarity(value) for value in true.pairs.measure64()]
    for rank, card in enumerate(pairs):
        predicted, right, *features = card.lines
        found = predicted
        wanted = ("predicted class", *classes_of(true.data, true.pairs, true.finder.labels, rank))
        assert found == wanted
        assert predicted[1] != predicted[2]
        assert right[1] == right[2]
        assert right == ("true class", *classes_of(true.data, true.pairs, true.data.y, rank))
        differing = differing_features(true.data, card.source, card.target, 4)
        assert features == [
            (row.name, format_value(row.source), format_value(row.target)) for row in differing
        ]

    words = " ".join(text.split())
    searched = "142 test nodes" if nodes == "test" else "all 569 nodes"
    assert "569 nodes, 2,168 edges, 30 features, 2 classes" in words
    assert f"{true.report.test_accuracy:.1%} of the 142 test nodes" in words
    assert f"among {searched}" in words
    assert max(map(len, text.splitlines()[:-1])) <= 80
    table = [line for line in text.splitlines() if line.startswith(("Pair", "  "))]
    assert len({len(line) for line in table}) == 1


def test_picture_of_the_first_pair(shown):
    text, folder = shown
    wanted = f"A picture of pair 1 and its neighbours: {folder / 'evidence.png'}"
    assert text.splitlines()[-1] == wanted
    with Image.open(folder / "evidence.png") as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 1000
        assert np.asarray(picture.convert("L")).std() > 10
    assert list(folder.parents[1].rglob("*.*")) == [folder / "evidence.png"]


@pytest.mark.slow
def test_german_shows_its_units(tmp_path, data_root):
    text = show(tmp_path, "german", data_root, pairs=1)
    (card,) = cards(text)
    data = load("german", data_root)
    assert data.test_mask[[card.source, card.target]].all()
    assert {"good customer", "bad customer"} == set(card.lines[0][1:])
    assert card.lines[2][0] in data.feature_names
    assert "1,000 nodes, 21,742 edges" in text


@pytest.mark.slow
def test_columns_without_a_meaning_are_left_out(tmp_path, data_root):
    text = show(tmp_path, "cora", data_root, pairs=2)
    wanted = [["predicted class", "true class"]] * 2
    assert [[line[0] for line in card.lines] for card in cards(text)] == wanted
    assert "own units" not in text


def test_one_class_everywhere_is_not_an_error(tmp_path):
    folder = tmp_path / "nifty" / "german"
    folder.mkdir(parents=True)
    rows = "\n".join(f"{1 if i % 4 else -1},Male,7" for i in range(16))
    (folder / "german.csv").write_text(f"GoodCustomer,Gender,Age\n{rows}\n")
    (folder / "german_edges.txt").write_text("".join(f"{i} {(i + 1) % 16}\n" for i in range(16)))
    text = show(tmp_path / "out", "german", tmp_path)
    expected_text = (
        "puts 4 test nodes of each true class in one class, so there is no counterfactual evidence"
    )
    assert expected_text in text
    assert "Pair" not in text
    assert not (tmp_path / "out" / "evidence.png").exists()


def test_bad_arguments(tmp_path):
    with pytest.raises(ValueError, match="pairs must be at least 1, got 0"):
        show(tmp_path, pairs=0)
    with pytest.raises(FileNotFoundError, match=re.escape(str(tmp_path))):
        show(tmp_path, "german", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        show(tmp_path / "file")
