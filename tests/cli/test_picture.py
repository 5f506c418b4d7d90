import cfe_faiss as cfe
from cfe_faiss.cli import main


def test_own_files(inside, tmp_path, output, capsys):
    options = inside.options("features", "edges", "predictions", "truth")
    assert main(["build", str(tmp_path / "index"), *options]) == 0
    capsys.readouterr()
    pairs = cfe.global_evidence(cfe.read_index(tmp_path / "index"), 1)
    first, second = inside.ids[[pairs.source[0], pairs.target[0]]]
    text = output("plot", tmp_path / "index", *options, "--out", tmp_path / "pair.svg")
    assert text == f"{tmp_path / 'pair.svg'}: nodes {first} and {second}\n"
    drawn = (tmp_path / "pair.svg").read_text()
    cases = (f"Nodes {first} and {second}: similar, yet predicted differently", "malignant, sure")
    for word in cases:
        assert f"<!-- {word}" in drawn or word in drawn
    output("plot", tmp_path / "index", second, first, *options, "--out", tmp_path / "pair.png")
    assert (tmp_path / "pair.png").read_bytes().startswith(b"\x89PNG")


def test_data_sets(patients, tmp_path, output):
    out = tmp_path / "pair.pdf"
    output("plot", patients, "--dataset", "patients", "--model", "sage", "--seed", 2, "--out", out)
    assert out.read_bytes().startswith(b"%PDF")
