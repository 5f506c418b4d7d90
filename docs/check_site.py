# ruff: noqa: T201 - a script
"""Check a built site: ``python docs/check_site.py build/docs/html``.

Every link to a page, a heading or a file of the site leads somewhere; nothing is loaded from the network; and, where
there is a Chromium, no page is wider than a phone, and none complains.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

PHONE = 390
# The theme's article scrolls within the page: wide content does not make the page wider.
WIDTH = """Math.max(...[document.documentElement, ...document.querySelectorAll(".bd-article-container")]
    .map(part => part.scrollWidth))"""
LOADED = {
    ("img", "src"),
    ("script", "src"),
    ("link", "href"),
    ("iframe", "src"),
    ("source", "src"),
    ("video", "src"),
}


class Page(HTMLParser):
    """The links, loaded files and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what the tag refers to and how it is referred to."""
        for name, value in attrs:
            if value is None:
                continue
            if name in {"id", "name"}:
                self.anchors.add(value)
            elif (tag, name) in LOADED:
                self.loaded.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)


def _is_external(link: str) -> bool:
    return link.startswith(("http://", "https://", "//", "mailto:", "data:"))


def _broken(site: Path) -> Iterator[str]:
    pages = {
        path: Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts
    }
    for path, page in pages.items():
        where = path.relative_to(site)
        yield from (
            f"{where}: loads {link}"
            for link in page.loaded
            if _is_external(link) and link[:5] != "data:"
        )
        for link in [*page.links, *page.loaded]:
            if _is_external(link):
                continue
            file, anchor = urldefrag(link)
            target = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{where}: no file for {link}"
            elif target in pages and unquote(anchor) not in pages[target].anchors:
                yield f"{where}: no place for {link}"


def _chromium() -> str | None:
    return (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )


def _not_fitting(site: Path, executable: str) -> Iterator[str]:
    from playwright.sync_api import sync_playwright

    # A sandbox needs another user than root.
    options = ["--no-sandbox"] if os.name == "posix" and os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=options)
        view = browser.new_page(viewport={"width": PHONE, "height": 844})
        complaints: list[str] = []
        view.on("pageerror", lambda error: complaints.append(str(error)))
        view.on(
            "request",
            lambda request: complaints.append(request.url) if "http" in request.url[:4] else None,
        )
        for path in sorted(site.rglob("*.html")):
            if "_static" in path.parts:
                continue
            view.goto(path.as_uri())
            width = view.evaluate(WIDTH)
            if width > PHONE:
                complaints.append(f"is {width} px wide on a phone of {PHONE} px")
            yield from (f"{path.relative_to(site)}: {complaint}" for complaint in complaints)
            complaints.clear()
        browser.close()


def main(site: Path) -> int:
    """Print what is wrong with the site, and return the exit status."""
    wrong = list(_broken(site))
    executable = _chromium()
    if executable is None:
        print("no Chromium: whether pages fit a phone is not checked")
    else:
        wrong += _not_fitting(site, executable)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
