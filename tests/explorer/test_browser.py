"""The explorer in a real browser."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browsers import Seen
from hypothesis import given
from hypothesis import strategies as st

import cfe_faiss as cfe
from cfe_faiss.base.text import csv_text

LINES = "#lines > [role=row]"
N = 200
K = 3000
HOSTILE = "</script><img src=x onerror=alert(1)>"


def people() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "who": [f"P{row:03}" for row in range(N)],
            "income": rng.normal(40, 9, N).round(1),
            "debt": rng.gamma(2, 5, N).round(1),
            "sex": rng.choice(["f", "m"], N),
            "home": rng.choice(["rent", "own", HOSTILE], N),
            "loan": rng.choice(["no", "yes"], N),
        }
    )
    table.loc[3, "who"] = "=1+1"
    table.loc[4, "who"] = HOSTILE
    table.loc[::3, "home"] = None
    return table


@pytest.fixture(scope="module")
def finder() -> cfe.EvidenceFinder:
    with pytest.warns(cfe.InputWarning, match="missing values"):
        return cfe.EvidenceFinder.from_table(people(), "loan", id="who", sensitive=["sex"])


@pytest.fixture(scope="module")
def frame(finder: cfe.EvidenceFinder) -> pd.DataFrame:
    return finder.top_pairs(K).to_frame(attributes=True)


@pytest.fixture(scope="module")
def file(finder: cfe.EvidenceFinder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    better = {"income": "high", "debt": "low"}
    path = tmp_path_factory.mktemp("pages") / "pairs.html"
    return finder.explore(path, K, better=better, unfavourable="no")


@pytest.fixture
def seen(browser: Any, file: Path) -> Iterator[Seen]:
    """Open the page; at the end it has asked for nothing and complained of nothing."""
    with Seen(browser, file, 1280) as seen:
        seen.page.wait_for_selector(LINES)
        yield seen
        assert seen.messages == []
        assert {url.partition("#")[0] for url in seen.requests} == {file.as_uri()}


def shown(page: Any) -> list[list[str]]:
    """Scroll to the top, and return the cells of the first ten lines of the table."""
    page.evaluate("byId('body').scrollTop = 0; drawLines();")
    cells = "lines => lines.map(line => [...line.children].map(cell => cell.innerText))"
    return page.locator(LINES).evaluate_all(cells)[:10]


def count(page: Any) -> int:
    return int(page.locator("#status").inner_text().split()[0].replace(",", ""))


def address(page: Any) -> str:
    page.wait_for_timeout(300)
    return page.url.partition("#")[2]


def test_lines_are_the_pairs(seen: Seen, frame: pd.DataFrame) -> None:
    lines = shown(seen.page)
    assert count(seen.page) == len(frame)
    assert [line[1] for line in lines] == frame["source"].head(10).tolist()
    assert [line[2] for line in lines] == frame["target"].head(10).tolist()
    sides = zip(frame["source_class"][:10], frame["target_class"][:10], strict=True)
    assert [line[3] for line in lines] == [f"{a} → {b}" for a, b in sides]
    assert [float(line[4]) for line in lines] == pytest.approx(frame["distance"][:10], rel=1e-4)


@pytest.mark.parametrize("key", ["place", "measure", "count", "largest"])
def test_sorting(seen: Seen, key: str) -> None:
    button = seen.page.locator(f"[data-sort={key}]")
    column = {"place": 0, "measure": 4, "count": 5, "largest": 6}[key]
    for direction in ("ascending", "descending"):
        if key != "place" or direction == "descending":
            button.click()
        numbers = [float(line[column]) for line in shown(seen.page)]
        assert numbers == sorted(numbers, reverse=direction == "descending")
        assert button.locator("..").get_attribute("aria-sort") == direction
    assert f"sort=-{key}" in address(seen.page)


def test_filters(seen: Seen, frame: pd.DataFrame) -> None:
    page = seen.page
    is_from_no = frame["source_class"] == "no"
    sides = {side: frame[f"{side}_class"] for side in ("source", "target")}
    expected: dict[str, Any] = {
        "[name=from]=no": (sides["source"] == "no") | (sides["target"] == "no"),
        "[name=attribute]=2": frame["source_sex"] != frame["target_sex"],
        "[name=group]=2=f": (frame["source_sex"] == "f") | (frame["target_sex"] == "f"),
    }
    for choice, mask in expected.items():
        selector, _, value = choice.partition("]=")
        page.locator(f"{selector}]").select_option(value)
        assert count(page) == mask.sum() > 0
        if "from" in choice:  # all of them stand left
            assert {line[3] for line in shown(page)} == {"no → yes"}
            assert shown(page)[0][1] == frame["source" if is_from_no[0] else "target"][0]
        if "attribute" in choice:
            page.locator("[name=how]").select_option("agrees")
            assert count(page) == len(frame) - mask.sum()
        page.locator("button[type=reset]").click()
        page.wait_for_timeout(50)
        assert count(page) == len(frame)
    page.locator("[name=attribute]").select_option("3")
    page.locator("[name=how]").select_option("unknown")
    lacks_one = frame["source_home"].isna() | frame["target_home"].isna()
    assert count(page) == lacks_one.sum() > 0
    page.locator("button[type=reset]").click()
    page.locator("[name=limit]").fill("0.5")
    assert count(page) == (frame["distance"] <= 0.5).sum()
    page.locator("[name=limit]").fill("")
    page.locator("[name=find]").fill("p01")
    found = frame["source"].str.contains("P01") | frame["target"].str.contains("P01")
    assert count(page) == found.sum() > 0
    page.locator("[name=find]").fill("nobody")
    assert count(page) == 0
    assert page.locator("#pair").inner_text() == "No pair fits the filters."


def test_pairs_that_are_at_least_as_good(seen: Seen, frame: pd.DataFrame) -> None:
    seen.page.locator("[name=better]").check()
    refused = frame["source_class"] == "no"
    change = frame["target_income"] - frame["source_income"]
    debt = frame["target_debt"] - frame["source_debt"]
    sign = np.where(refused, -1, 1)
    assert count(seen.page) == ((sign * change >= 0) & (sign * debt <= 0)).sum() > 0


def test_a_turned_pair_has_turned_differences(seen: Seen, frame: pd.DataFrame) -> None:
    place = int((frame["target_class"] == "no").idxmax())
    key = f"pair={'-'.join(str(int(name)) for name in _rows(frame, place))}"
    for fragment, sign in ((key, 1), (f"{key}&from=no", -1)):
        seen.page.evaluate(f"location.hash = '{fragment}'")
        seen.page.wait_for_timeout(100)
        bar = seen.page.locator("#pair tr", has_text="income").locator(".bar").inner_text()
        change = frame["target_income"][place] - frame["source_income"][place]
        assert (float(bar.replace("−", "-")) > 0) == (sign * change > 0)


def _rows(frame: pd.DataFrame, place: int) -> list[int]:
    ids = people()["who"].tolist()
    return [ids.index(frame[side][place]) for side in ("source", "target")]


def test_side_by_side(seen: Seen, frame: pd.DataFrame) -> None:
    page = seen.page
    lacks_one = frame["source_home"].isna() ^ frame["target_home"].isna()
    place = int(np.flatnonzero(lacks_one)[0])
    page.evaluate(f"choose(pairs[{place}])")
    assert f"Pair {place + 1}: " in page.locator("#pair h2").inner_text()
    missing = page.locator("#pair td.missing")
    assert missing.inner_text() == "unknown"
    equal = page.locator("#pair details")
    assert not equal.locator("table").is_visible()
    equal.locator("summary").click()
    assert equal.locator("table").is_visible()
    names = page.locator("#pair th[scope=row]").all_inner_texts()
    assert sorted(names) == ["debt", "home", "income", "sex not compared"]
    widths = page.locator("#pair .bar i").evaluate_all("e => e.map(b => b.offsetWidth)")
    assert widths == sorted(widths, reverse=True)


def test_the_largest_difference_is_of_compared_numbers(
    seen: Seen, finder: cfe.EvidenceFinder, frame: pd.DataFrame
) -> None:
    changes = [
        (frame[f"target_{name}"] - frame[f"source_{name}"]).abs() / people()[name].std(ddof=0)
        for name in ("income", "debt")
    ]
    expected = np.maximum(*changes)[:10]
    assert [float(line[6]) for line in shown(seen.page)] == pytest.approx(expected, abs=0.06)
    place = int((frame["source_sex"] != frame["target_sex"]).idxmax())
    seen.page.evaluate(f"choose(pairs[{place}])")
    row = seen.page.locator("#pair tbody tr", has_text="not compared")
    assert row.locator(".bar").inner_text() == "different"


def test_an_address_of_another_page_shows_no_pair(seen: Seen) -> None:
    page = seen.page
    page.evaluate("location.hash = 'pair=9998-9999'")
    page.wait_for_timeout(300)
    assert "is not on this page" in page.locator("#pair").inner_text()
    page.locator("#grid").focus()
    page.keyboard.press("1")
    page.keyboard.press("ArrowDown")
    assert page.locator("#pair h2").inner_text().startswith("Pair 1:")


def test_the_address_names_the_pair_and_the_filters(
    seen: Seen, browser: Any, file: Path, frame: pd.DataFrame
) -> None:
    page = seen.page
    page.locator("[name=from]").select_option("yes")
    page.locator("[name=group]").select_option("2=f")
    page.locator("[name=find]").fill("P0")
    assert "find" not in address(page)
    page.locator("[name=find]").fill("")
    page.locator("[data-sort=largest]").click()
    page.locator(LINES).nth(4).click()
    title = page.locator("#pair h2").inner_text()
    fragment = address(page)
    assert re.search(r"pair=\d+-\d+", fragment)
    assert "P0" not in fragment  # ids are no part of it
    with Seen(browser, file, 1280) as other:
        other.page.goto(f"{file.as_uri()}#{fragment}")
        other.page.reload()
        other.page.wait_for_selector(LINES)
        assert other.page.locator("#pair h2").inner_text() == title
        assert shown(other.page) == shown(page)
        assert other.page.locator("[name=from]").input_value() == "yes"


def test_keys(seen: Seen) -> None:
    page = seen.page
    grid = page.locator("#grid")
    grid.focus()

    def place() -> int:
        active = grid.get_attribute("aria-activedescendant")
        chosen = page.locator(f"#{active}")
        assert chosen.get_attribute("aria-selected") == "true"
        assert chosen.is_visible()
        return int(active.removeprefix("pair-"))

    assert place() == 0
    for key, expected in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("End", K - 1)):
        page.keyboard.press(key)
        assert place() == expected
    page.keyboard.press("PageUp")
    assert K - 100 < place() < K - 1
    page.keyboard.press("Home")
    assert place() == 0
    page.keyboard.press("2")
    assert page.locator("#pair [aria-pressed=true]").inner_text() == "label error"
    page.keyboard.press("0")
    assert page.locator("#pair [aria-pressed=true]").count() == 0


def test_it_is_an_aria_grid(seen: Seen) -> None:
    page = seen.page
    grid = page.locator("#grid")
    assert grid.get_attribute("role") == "grid"
    assert grid.get_attribute("aria-rowcount") == str(K + 1)
    cells = page.locator(f"{LINES} >> nth=0").locator("[role=gridcell]").count()
    heads = page.locator("[role=columnheader]").count()
    assert cells == heads == int(grid.get_attribute("aria-colcount"))
    assert page.locator(LINES).first.get_attribute("aria-rowindex") == "2"
    unnamed = """[...document.querySelectorAll('input, select, textarea')].filter(
        e => !e.closest('label') && !e.ariaLabel).length"""
    assert page.evaluate(unnamed) == 0


def test_marks_go_out_and_come_back(
    seen: Seen, finder: cfe.EvidenceFinder, frame: pd.DataFrame, tmp_path: Path
) -> None:
    page = seen.page
    ids = np.array([frame["source"], frame["target"]])
    hostile = int(np.flatnonzero((ids == "=1+1").any(axis=0))[0])
    notes = {0: '=cmd "a", b', 1: "−plain; ü\nline", hostile: "-2.5"}
    for place, note in notes.items():
        page.evaluate(f"choose(pairs[{place}])")
        page.locator("#pair .marks button", has_text="explained").click()
        page.locator("#pair textarea").fill(note)
    assert shown(page)[0][7] == "explained"
    page.locator("[name=mark]").select_option("explained")
    assert count(page) == 3
    with page.expect_download() as download:
        page.locator("#export").click()
    file = tmp_path / "marks.csv"
    download.value.save_as(file)
    text = file.read_text(encoding="utf-8")
    assert '"\'=1+1"' in text
    assert not re.search(r'(^|,)"?[=+@]', text, re.MULTILINE)
    marked = finder.reviewed(file).to_frame()
    places = sorted(notes)
    assert marked["source"].tolist() == frame["source"][places].tolist()
    assert marked["target"].tolist() == frame["target"][places].tolist()
    assert set(marked["mark"]) == {"explained"}
    expected = {0: '\'=cmd "a", b', 1: "−plain; ü line", hostile: "-2.5"}
    assert marked["note"].tolist() == [expected[place] for place in places]


@given(texts=st.lists(st.text(max_size=12) | st.from_regex(r"\s?[=+@-]?[\d.]+(e-?\d)?( to 3)?")))
def test_csv_has_one_rule(rule: Any, texts: list[str]) -> None:
    # JavaScript's white space has one more character.
    texts = [text.replace("\ufeff", "").replace("\ud800", "") for text in texts]
    texts = [text for text in texts if text.isascii() or not re.search(r"\d", text)]
    assert rule.evaluate("texts => texts.map(csvText)", texts) == list(map(csv_text, texts))


@pytest.fixture(scope="module")
def rule(browser: Any, file: Path) -> Iterator[Any]:
    with Seen(browser, file, 1280) as seen:
        seen.page.wait_for_selector(LINES)
        yield seen.page


def test_hostile_names_are_texts(seen: Seen, frame: pd.DataFrame) -> None:
    page = seen.page
    page.locator("[name=find]").fill("onerror")
    assert shown(page)[0][1] == HOSTILE or shown(page)[0][2] == HOSTILE
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("#pair h2").inner_text()
    option = f"[...document.querySelectorAll('option')].some(e => e.text === {HOSTILE!r})"
    assert page.evaluate(option)


def test_narrow_dark_and_printed(browser: Any, file: Path) -> None:
    with Seen(browser, file, 390, color_scheme="dark") as seen:
        page = seen.page
        page.wait_for_selector(LINES)
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator("#pair table").first.is_visible()
        page.evaluate("setMark(pairs[0], 'label error')")
        cells = page.locator(f"{LINES} >> nth=0").locator("[role=gridcell]")
        assert [cells.nth(place).is_visible() for place in range(8)] == [False] + 7 * [True]
        note = "a note of some length " * 20
        page.locator("#pair textarea").fill(note)
        printed = page.pdf(prefer_css_page_size=True)
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
        page.emulate_media(media="print")
        assert page.locator("#pair details table").is_visible()
        sizes = page.locator("#pair textarea").evaluate("e => [e.scrollHeight, e.clientHeight]")
        assert sizes[0] <= sizes[1]
        assert not page.locator("#grid").is_visible()
        assert page.locator("#pair h2").is_visible()
        assert seen.messages == []


def test_a_pair_of_many_attributes_and_long_texts_is_printed_on_one_page(
    browser: Any, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    store = cfe.EvidenceStore(2)
    metadata = [
        {f"key {place}": value for place, value in enumerate(rng.normal(size=120).tolist())}
        for _ in range(2)
    ]
    texts = [" ".join(rng.choice(["ab", "cd", "ef"], 900)) for _ in range(2)]
    store.add(["a", "b"], [[1, 0], [1, 1]], [0, 1], metadata, texts)
    with Seen(browser, store.explore(tmp_path / "pairs.html"), 1280) as seen:
        seen.page.wait_for_selector(LINES)
        printed = seen.page.pdf(prefer_css_page_size=True)
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) == 1
        assert seen.page.locator("#pair tbody tr").count() == 120


def test_words_that_differ_are_marked(browser: Any, tmp_path: Path) -> None:
    store = cfe.EvidenceStore(2)
    texts = [
        "the quick brown fox jumps over the lazy dog",
        "the brown fox leaps over the dog again",
    ]
    store.add(["a", "b"], [[1, 0], [1, 1]], ["x", "y"], documents=texts)
    with Seen(browser, store.explore(tmp_path / "pairs.html"), 1280) as seen:
        seen.page.wait_for_selector(LINES)
        sides = seen.page.locator("#pair .text")
        assert [side.strip() for side in sides.all_inner_texts()] == texts
        marked = [sides.nth(i).locator("mark").all_inner_texts() for i in (0, 1)]
        assert marked == [["quick", "jumps", "lazy"], ["leaps", "again"]]


def test_neighbours_of_both_are_shown(browser: Any, tmp_path: Path) -> None:
    class Data:
        x = np.array([[1.0, 0.0], [0.9, 0.1], [0.2, 0.8], [0.0, 1.0]], np.float32)
        edge_index = np.array([[0, 1, 0], [2, 2, 3]])
        class_names = ("no", "yes")

    finder = cfe.EvidenceFinder.from_data(Data, [0, 1, 1, 0])
    pairs = finder.top_pairs(10)
    place = [*zip(pairs.source, pairs.target, strict=True)].index((0, 1))
    with Seen(browser, finder.explore(tmp_path / "pairs.html"), 1280) as seen:
        seen.page.wait_for_selector(LINES)
        seen.page.evaluate(f"choose(pairs[{place}])")
        near = seen.page.locator(".near")
        assert near.nth(0).locator("li").all_inner_texts() == ["3, no", "2, yes"]
        assert near.nth(0).locator(".both").all_inner_texts() == ["2, yes"]
        assert "2 neighbours, 1 with the same decision" in seen.page.locator("#pair").inner_text()


def test_5000_pairs_are_there_at_once(browser: Any, tmp_path: Path) -> None:
    """Loosely: a busy machine may take several times as long as a quiet one."""
    rng = np.random.default_rng(0)
    X = np.tile(rng.normal(size=(5000, 20)), (2, 1))
    X[5000:] += rng.normal(size=(5000, 20)) / 100
    features = {f"column {place}": X[:, place] for place in range(20)}
    labels = np.repeat([0, 1], 5000)
    finder = cfe.EvidenceFinder.from_vectors(X, labels, features=features, metric="l2")
    with Seen(browser, finder.explore(tmp_path / "pairs.html", 5000), 1280) as seen:
        page = seen.page
        page.wait_for_selector(LINES)
        assert page.evaluate("performance.now()") < 5000
        assert count(page) == 5000
        assert page.locator(LINES).count() < 60
        page.locator("#body").evaluate("e => { e.scrollTop = 34 * 2500; }")
        page.wait_for_selector("#pair-2505")
        assert page.locator(LINES).count() < 60
