"""The course as pages: every link and anchor leads somewhere, nothing scrolls sideways, and no page
asks for a network."""

from __future__ import annotations

import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from vitreous.course.figures import figure_of
from vitreous.course.html import Pages, Words, chinese, drawn_figure, markdown
from vitreous.course.myths import measured_myths
from vitreous.course.site import write_living, write_site
from vitreous.course.text import Directive, chapters
from vitreous.deploy.web_runtime import NoRuntimeError


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


def test_every_page_says_its_language(site):
    for path in site.glob("??/*.html"):
        text = path.read_text(encoding="utf-8")
        assert f'<html lang="{"zh-Hans" if path.parent.name == "zh" else "en"}">' in text
        assert '<article role="main">' in text


def test_every_myth_stands_on_its_page(site, read):
    for language in ("en", "zh"):
        path = site / language / "myths.html"
        assert {each.id for each in measured_myths()} <= read[path].ids


def test_labels_of_figures_are_chinese_and_read_aloud():
    for chapter in chapters("zh"):
        named = [b for b in chapter.blocks() if isinstance(b, Directive) and b.word == "figure"]
        for name in (each.given[0] for each in named):
            _, labels = figure_of(chapter.number, name)
            drawn = drawn_figure(chapter.number, name, "zh")
            shown = {unescape(text) for text in re.findall(">([^<>]+)<", drawn)}
            assert not {each for each, text in labels.items() if each != text} & shown, name
            assert 'aria-label="图：' in drawn


def test_lines_do_not_end_before_units_full_stops_and_within_options():
    assert "17.6\u00a0GMACs, 197\u00a0×\u00a0768, 4.1\u00a0%" in markdown(
        "17.6 GMACs, 197 × 768, 4.1 %"
    )
    assert "</math></span>\u2060。" in markdown("共用 $E$。")
    assert "<code>vitreous <span>--set-recipe</span> a</code>" in markdown(
        "`vitreous --set-recipe a`"
    )
    assert chinese("占 4.1 %，\n其余") == "占 4.1%，其余"


# ---- without the runtime of the living page


@pytest.fixture
def no_runtime(monkeypatch):
    def missing(folder, log, *, webgpu):
        raise NoRuntimeError("npm could not fetch it")

    monkeypatch.setattr("vitreous.pages.living.web_runtime", missing)


def test_without_its_runtime_the_page_shows_stored_numbers_and_says_so(no_runtime, tmp_path):
    said = []
    assert not write_living(tmp_path / "living.html", log=said.append)
    assert "they show stored numbers: npm could not fetch it" in said[-1]
    assert (tmp_path / "living.html").is_file()
    for chapter in (chapters("en")[1], chapters("zh")[1]):
        blocks = [b for b in chapter.blocks() if isinstance(b, Directive) and b.word == "live"]
        for block in blocks:
            frame = Pages(chapter, live=False).block(block)
            assert Words(chapter.language)("stored") in frame
            assert "only=change" not in frame  # nothing can be changed in it
            assert Words(chapter.language)("stored") not in Pages(chapter).block(block)


def test_a_runtime_that_was_given_has_to_do(no_runtime, tmp_path):
    with pytest.raises(NoRuntimeError):
        write_site(tmp_path / "course", runtime=tmp_path)
    assert not list(tmp_path.rglob("*.html"))


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
