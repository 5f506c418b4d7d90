"""README and the site's first page run as printed: pasted into a fresh process, without hidden set-up."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
END = "<!-- end of the first screen -->"

pytestmark = pytest.mark.skipif(
    not (ROOT / "docs" / "conf.py").is_file(), reason="for a clone of the repository"
)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_code_prints_the_comment_at_its_end(tmp_path: Path) -> None:
    pytest.importorskip("torch_geometric")
    blocks = re.findall(r"```python\n(.*?)```", read("README.md"), re.DOTALL)
    assert len(blocks) == 1
    for code in blocks:
        lines = code.splitlines()
        output = "\n".join(line.removeprefix("# ") for line in lines if line.startswith("#"))
        assert output
        assert len([line for line in lines if line.strip() and line[0] != "#"]) <= 8
        options = {"capture_output": True, "text": True, "cwd": tmp_path}
        done = subprocess.run([sys.executable, "-"], input=code, **options)
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip() == output.rstrip()


def test_nothing_is_hidden() -> None:
    for name in ("README.md", "docs/index.md"):
        assert "<!-- setup" not in read(name)
        assert "<!-- not run" not in read(name)


def test_the_first_page_of_the_site_is_the_first_screen() -> None:
    assert END in read("README.md")
    start = "```{include} ../README.md\n:end-before: " + END
    assert read("docs/index.md").startswith(start)
    doors = re.findall(
        r"^\| [\w ]+ \| \[.*\]\((docs/getting_started/\w+\.md)\) \|$", read("README.md"), re.M
    )
    assert len(doors) == 5
