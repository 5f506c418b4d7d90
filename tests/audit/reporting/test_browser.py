"""The page in a real browser: the Chromium of the distribution."""

import re

import numpy as np
import pytest
from browsers import Seen

import cfe_faiss as cfe
from cfe_faiss import audit

WIDTHS = [360, 390, 1280]


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """Write a report as large as that of Bail: a graph, 18 attributes, two of them sensitive, ten cases, findings."""
    rng = np.random.default_rng(1)
    n, d = 900, 16
    x = rng.normal(size=(n, d)).astype(np.float32)
    x[:, d // 2 :] = x[:, d // 2 :] > 1
    people = {
        "sex": rng.choice(["female", "male"], n),
        "origin": rng.choice(["here", "elsewhere"], n, p=[0.8, 0.2]),
    }
    score = x[:, 0] + x[:, 1] - 0.8 * (people["sex"] == "female")
    y = (score + rng.normal(size=n) > 0).astype(int)
    features = {f"score {i}": x[:, i].round(1) for i in range(d)} | people
    names = [f"score {i}" for i in range(d)]

    class Data:
        edge_index = rng.integers(0, n, (2, 3 * n))
        feature_names = names
        name = "sample"
        class_names = ("refused", "granted")

    Data.x, Data.y = x, y
    share = 1 / (1 + np.exp(-2 * score))
    finder = cfe.EvidenceFinder.from_data(
        Data, np.column_stack([1 - share, share]), features=features
    )
    return audit.report(
        finder,
        tmp_path_factory.mktemp("sample") / "report.html",
        sensitive=["sex", "origin"],
        favourable="granted",
        require=["impact_ratio>=0.8"],
        subject=audit.Subject(people="applicants"),
        progress=False,
    )


def shown(page, selector):
    """Return how many elements of a kind a reader sees."""
    return page.evaluate(
        f"[...document.querySelectorAll('{selector}')].filter(e => e.getClientRects().length).length"
    )


@pytest.fixture(scope="module")
def opened(browser, sample):
    with Seen(browser, sample.files[0], 1200) as seen:
        yield seen.page


@pytest.fixture
def page(opened):
    """Return the page of the sample, as it was opened."""
    yield opened
    opened.emulate_media(media="null", color_scheme="light")
    opened.set_viewport_size({"width": 1200, "height": 800})
    opened.locator("#all").uncheck()


def test_seen_narrow_and_wide_light_and_dark_and_printed(browser, audited):
    with Seen(browser, audited.report.files[0], WIDTHS[0]) as seen:
        for scheme, colour in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(21, 24, 28)")):
            seen.page.emulate_media(color_scheme=scheme)
            for width in WIDTHS:
                seen.page.set_viewport_size({"width": width, "height": 800})
                assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
                assert seen.page.locator("table").first.is_visible()
            assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == colour
        seen.page.emulate_media(media="print")  # in light colours
        seen.page.set_viewport_size(
            {"width": 688, "height": 1000}
        )  # an A4 page between its margins
        found = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert found == "rgb(255, 255, 255)"
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= 688 * 1.5
        assert not seen.page.locator("#all").is_visible()
        assert seen.messages == []
        assert seen.requests == [audited.report.files[0].as_uri()]


def test_a_sample_is_short_on_the_screen_and_in_the_file(page, sample):
    assert sample.files[0].stat().st_size < 300_000
    assert page.evaluate("document.documentElement.scrollHeight") <= 8_000
    assert shown(page, ".body") == 0


def test_a_sample_is_printed_on_twelve_pages_with_all_details(page):
    closed = page.pdf(prefer_css_page_size=True)
    assert 0 < len(re.findall(rb"/Type\s*/Page\b", closed)) <= 12
    # The text of the PDF itself, where a closed element would be missing.
    page.locator("#all").check()
    opened = page.pdf(prefer_css_page_size=True)
    assert abs(len(closed) - len(opened)) < 0.02 * len(opened)
    page.locator("#all").uncheck()
    page.emulate_media(media="print")
    details = page.locator(".body").count()
    assert details >= 14
    assert shown(page, ".body") == details
    assert shown(page, ".case table") == 10
    assert shown(page, "summary h3") == details


def test_nothing_is_wider_than_a_phone(page):
    page.set_viewport_size({"width": 390, "height": 800})
    page.locator("#all").check()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wider = "[...document.querySelectorAll('td, th, p, li, svg')].filter(e => e.getBoundingClientRect().right > 391)"
    assert page.evaluate(f"{wider}.map(e => e.textContent)") == []
    sizes = "[...document.querySelectorAll('td, th, p, li, text')].filter(e => e.getClientRects().length)"
    smallest = page.evaluate(
        f"Math.min(...{sizes}.map(e => parseFloat(getComputedStyle(e).fontSize)))"
    )
    assert smallest >= 11
    # Rows become paragraphs: each number stands after what it is called.
    name = "getComputedStyle(document.querySelector('#all_tests td, .scroll td[data-name]'), '::before').content"
    assert ": " in page.evaluate(name)


def test_a_detail_opens_by_a_click_by_the_keyboard_and_by_its_address(browser, sample):
    with Seen(browser, sample.files[0], 1200, java_script_enabled=True) as seen:
        body = seen.page.locator("#flip .body, #balance .body").last
        assert not body.is_visible()
        seen.page.locator("#balance summary").click()
        assert body.is_visible()
        seen.page.locator("#balance summary").press("Enter")
        assert not body.is_visible()
        seen.page.goto(f"{sample.files[0].as_uri()}#balance")
        assert body.is_visible()


def test_an_old_browser_shows_everything(browser, sample, tmp_path):
    """Without @supports selector(), which hides the details, nothing is hidden."""
    page = sample.files[0].read_text()
    old = re.sub(
        r"@supports selector\(details",
        "@supports selector(:unknown-thing) and selector(details",
        page,
    )
    assert old != page
    (tmp_path / "old.html").write_text(
        re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", old)
    )
    context = browser.new_context(viewport={"width": 1200, "height": 800})
    opened = context.new_page()
    opened.goto((tmp_path / "old.html").as_uri())
    assert shown(opened, ".body") == opened.locator(".body").count()
    context.close()


def test_works_without_javascript(browser, audited):
    with Seen(browser, audited.report.files[0], 1280, java_script_enabled=False) as seen:
        assert seen.page.locator("main section").count() >= 18
        assert seen.page.locator("svg.figure").count() > 20
        assert seen.page.locator("script").count() == 0
