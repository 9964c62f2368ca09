"""The course as pages: every link and anchor leads somewhere, nothing scrolls sideways, and no page
asks for a network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from vitreous.course.site import write_site
from vitreous.course.text import chapters


class Anchors(HTMLParser):
    def __init__(self):
        super().__init__()
        self.ids, self.links = set(), []

    def handle_starttag(self, tag, attrs):
        told = dict(attrs)
        if "id" in told:
            self.ids.add(told["id"])
        self.links += [told[key] for key in ("href", "src") if told.get(key)]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    write_site(folder)
    return folder


@pytest.fixture(scope="module")
def read(site):
    found = {}
    for path in site.rglob("*.html"):
        if path.name == "living.html":
            continue
        found[path] = Anchors()
        found[path].feed(path.read_text(encoding="utf-8"))
    return found


def test_every_link_and_anchor_leads_somewhere(site, read):
    wrong = []
    for path, page in read.items():
        for link in page.links:
            if re.match("https?:|data:", link):
                continue
            to, _, anchor = link.partition("#")
            target = (path.parent / unquote(to)).resolve() if to else path
            ids = read[target].ids if target in read else {unquote(anchor)}
            if not target.is_file() or (anchor and unquote(anchor) not in ids):
                wrong.append(f"{path.relative_to(site)}: {link}")
    assert not wrong, "\n".join(wrong)


def test_no_formula_or_fact_stays_as_it_was_written(read):
    for path in read:
        text = re.sub(
            "<pre.*?</pre>|<code.*?</code>", "", path.read_text(encoding="utf-8"), flags=re.S
        )
        assert "{{" not in text, path
        assert "**" not in text, path
        assert "$$" not in text, path


def test_it_is_whole(site):
    for language in ("en", "zh"):
        for chapter in chapters(language):
            text = (site / language / f"{chapter.stem}.html").read_text(encoding="utf-8")
            assert all(f'id="{section.id}"' in text for section in chapter.sections)
        assert len(list((site / language / "docs").glob("*.html"))) >= 20


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_and_stay_offline(site, chromium, width):
    context = chromium.new_context(viewport={"width": width, "height": 900})
    context.set_offline(True)
    page = context.new_page()
    wrong = []
    page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: wrong.append(str(e)))
    page.on("request", lambda r: wrong.append(r.url) if r.url.startswith("http") else None)
    for path in sorted([*site.glob("??/*.html"), *site.glob("both/*.html"), site / "index.html"]):
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            wrong.append(f"{path.relative_to(site)} is {wide} pixels wide")
    context.close()
    assert not wrong, "\n".join(wrong)


def test_the_living_page_runs_in_a_chapter(site, chromium):
    path = site / "en" / "01-patches.html"
    page = chromium.new_context(viewport={"width": 1000, "height": 900}).new_page()
    page.goto(path.as_uri())
    page.locator("figure.live iframe").first.scroll_into_view_if_needed()
    frame = page.frame_locator("figure.live iframe").first
    frame.locator("html[data-ready]").wait_for(timeout=30_000, state="attached")
    assert frame.locator("#steps").is_visible()


def test_a_file_in_the_way_is_named(tmp_path):
    from vitreous.errors import ConfigError

    Path(tmp_path, "there").write_text("")
    with pytest.raises(ConfigError, match="is a file"):
        write_site(tmp_path / "there")
