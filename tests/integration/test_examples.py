"""The examples run, from an empty folder, and print what they promise; `make docs` runs all of them, too."""

import importlib.util
import io
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
CONTRAST = """\
urgent: My card was charged twice for one order
  but routine: My card was charged, please send me the receipt
  but routine: How do I change the card of my account
routine: How do I change my address after the update
  but urgent: The app crashes after the update and my order is lost
  but urgent: Somebody else changed the address of my account
"""
EVIDENCE = """\
urgent: My card was charged twice for one order
  but routine, similarity 0.64: My card was charged, please send me the receipt
  but routine, similarity 0.50: How do I change the card of my account
routine: How do I change my address after the update
  but urgent, similarity 0.69: The app crashes after the update and my order is lost
  but urgent, similarity 0.65: Somebody else changed the address of my account
"""


def output_of(name: str, folder: Path) -> str:
    """Return what an example prints. It runs in this process, which has loaded torch and others once."""
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as output:
        patch.chdir(folder)
        patch.setattr(sys, "argv", [name])
        patch.setenv("MPLBACKEND", "agg")
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
    assert list(folder.iterdir()) == []
    return output.getvalue()


def needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f'{package} is missing: pip install "cfe-faiss[integrations]"')


def test_langchain(tmp_path: Path) -> None:
    needs("langchain_core")
    needs("pyarrow")
    assert output_of("langchain_evidence.py", tmp_path) == (
        CONTRAST
        + "0.75 routine: My card was charged, please send me the receipt\n"
        + "0.54 routine: Please change the address of my account\n"
        + "after loading: Please change the address of my account\n"
    )


def test_llama_index(tmp_path: Path) -> None:
    needs("llama_index")
    needs("pyarrow")
    assert output_of("llama_index_evidence.py", tmp_path) == (
        EVIDENCE
        + "the language model was told the evidence: True\n"
        + "My card was charged, please send me the receipt\n"
        + "  but urgent: My card was charged twice, please refund one payment\n"
    )


def test_haystack(tmp_path: Path) -> None:
    needs("haystack")
    needs("pyarrow")
    lines = output_of("haystack_evidence.py", tmp_path).splitlines(keepends=True)
    most_similar = [line for line in lines if line.startswith("  most similar: ")]
    assert most_similar == [
        "  most similar: My card was charged twice, please refund one payment\n",
        "  most similar: The app shows the wrong address after the update\n",
    ]
    assert "".join(line for line in lines if line not in most_similar) == (
        EVIDENCE
        + "My card was charged twice, please refund one payment\n"
        + "  but routine: My card was charged, please send me the receipt\n"
    )


def test_faiss_dropin(tmp_path: Path) -> None:
    lines = output_of("faiss_dropin.py", tmp_path).splitlines()
    assert lines[:2] == ["is a faiss.IndexIVFFlat: True", "same answers in all lists: True"]
    assert lines[-3].startswith("the queries' classes: ")
    assert lines[-2:] == ["all of the mask: True", "the same from bytes: True"]


@pytest.mark.slow
def test_audit_own_model(tmp_path: Path) -> None:
    scores, shares, errors, tuned = (
        [line.split() for line in table.splitlines()]
        for table in output_of("audit_own_model.py", tmp_path).strip().split("\n\n")
    )
    # Of all attributes, the evidence differs in the sex far more often than expected.
    alone = [line for line in scores[1:] if "&" not in line]
    assert {line[0] for line in alone} == {"income", "debt", "age", "sex"}
    assert {line[0] for line in alone if float(line[-4]) > 0.1} == {"sex"}
    assert [line[0] for line in shares[1:]] == ["all", "sex", "sex"]
    assert [line[0] for line in errors[1:]] == ["10", "50", "200"]
    assert [line[0] for line in tuned[1:4]] == ["before", "after", "control"]


def test_evidence_on_patients(tmp_path: Path) -> None:
    header, *pairs = output_of("plot_evidence_on_patients.py", tmp_path).splitlines()
    assert header.split() == ["source", "target", "similarity", "source_label", "target_label"]
    labels = [line.split()[-2:] for line in pairs]
    assert len(labels) == 5
    assert all(source != target for source, target in labels)


@pytest.mark.slow
def test_planted_bias(tmp_path: Path) -> None:
    biased, fair, *cases = output_of("plot_planted_bias.py", tmp_path).strip().split("\n\n")
    expected = [f"{name} model, women against men, selected:" for name in ("biased", "fair")]
    assert [table.splitlines()[0] for table in (biased, fair)] == expected
    # women's impact ratios
    worst = [float(table.splitlines()[-1].split()[3]) for table in (biased, fair)]
    assert worst[0] < 0.7 < 0.9 < worst[1]
    decisions = [[line.split()[-2:] for line in table.splitlines()[1:]] for table in cases]
    # the man is granted it, the woman not
    assert all(sorted(case) == [["0", "1"], ["1", "0"]] for case in decisions)
    assert len(cases) == 2


def test_text_documents(tmp_path: Path) -> None:
    lines = output_of("plot_text_documents.py", tmp_path).splitlines()
    assert lines[1] == "urgent: My card was charged for a friend"
    assert all(line.startswith("  routine, similarity 0.") for line in lines[2:5])
    assert all(line.startswith("  urgent, similarity 0.") for line in lines[7:])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("plot_recall_and_speed.py", marks=pytest.mark.slow),
        "plot_weights_of_the_paper.py",
    ],
)
def test_pictures_alone(name: str, tmp_path: Path) -> None:
    assert output_of(name, tmp_path) == ""
