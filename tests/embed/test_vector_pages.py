"""The map and the sheets: in a real browser, with names that would break a page."""

import json
import re
import shutil

import numpy as np
import pytest
from browser import phone
from embed.test_embed import VIT, make_run
from PIL import Image

import vitreous
from vitreous.cli.main import main

EVIL = "</script><b>x"


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A map and a sheet of forty images, one class of which has markup for a name."""
    root = tmp_path_factory.mktemp("pages")
    run = make_run(root / "run", **VIT)
    random = np.random.default_rng(0)
    table = ["path,label,split"]
    for number in range(40):
        dark = number % 2
        image = random.integers(0, 80, (12, 8 + number % 3), np.uint8) + 150 * (1 - dark)
        Image.fromarray(image.astype(np.uint8)).save(root / f"{number}.png")
        split = "test" if number > 30 else "train"
        table.append(f"{number}.png,{(EVIL, 'dark')[dark]},{split}")
    shutil.copy(root / "3.png", root / "33.png")
    table[5] = "4.png,dark,train"  # which is wrong
    (root / "data.csv").write_text("\n".join(table))
    words = ["--map", root / "map.html", "--page", root / "sheet.html", "--suspects"]
    words += ["--duplicates", "--threshold=0.999", "--near", root / "0.png", "--pool=pixels"]
    assert main(["embed", str(run), str(root / "data.csv"), *map(str, words)]) == 0
    return root


def test_pages_stand_alone_and_are_escaped(pages):
    for name in ("map.html", "sheet.html"):
        text = (pages / name).read_text()
        assert EVIL not in text
        assert not re.search(r'(src|href)="(?!data:|#)', text)
    sheet = (pages / "sheet.html").read_text()
    assert "identical" in sheet
    assert "dark → &lt;/script&gt;&lt;b&gt;x?" in sheet


def test_the_map_in_a_browser(chromium, pages):
    """Zoom, pan, hover, search and the legend, on a phone's width."""
    with phone(chromium, pages / "map.html") as page:
        data = json.loads(page.inner_text("#data") or page.text_content("#data"))
        assert len(data["x"]) == len(data["paths"]) == 40
        assert sorted(data["groups"]["label"]["names"]) == sorted([EVIL, "dark"])
        box = page.locator("#plane").bounding_box()

        def place(number):
            x, y = page.evaluate(f"screen({number})")
            return box["x"] + x, box["y"] + y

        number = data["paths"].index("8.png")
        page.mouse.move(*place(number))
        page.mouse.wheel(0, -800)
        page.wait_for_function("view.zoom > 2")
        page.mouse.move(*place(number))
        page.wait_for_selector("#card:not([hidden])")
        assert page.evaluate("data.paths[chosen]") in page.inner_text("#where")
        left = page.evaluate("view.left")
        page.mouse.down()
        page.mouse.move(box["x"] + 20, box["y"] + 20)
        page.mouse.up()
        assert page.evaluate("view.left") != left
        page.click("#all")
        assert page.evaluate("view.zoom") == 1
        page.fill("#search", "8.png")
        assert page.inner_text("#found") == "4 of 40 match"
        page.press("#search", "Enter")
        assert page.evaluate("data.paths[chosen]") in ("8.png", "18.png", "28.png", "38.png")
        page.fill("#search", "")
        page.click("#legend button:has-text('dark')")
        assert page.inner_text("#found") == "19 of 40 are shown"
        page.locator("#colour").select_option("split")
        assert "train" in page.inner_text("#legend")
        page.locator("#language").select_option("zh")
        assert page.inner_text("h1") == page.title() == "40 张图像"
        assert page.inner_text("#found") == "40 张中显示 19 张"
        assert page.locator("#colour option").all_text_contents() == ["标签", "划分"]
        assert page.input_value("#colour") == "split"
        for words in page.locator("[data-say]").all_text_contents():
            assert re.search("[一-龥]", words), words
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_map_without_labels(pages, tmp_path):
    found = vitreous.embed(pages / "run", [pages / "0.png", pages / "1.png"], progress=False)
    path, layout = vitreous.api.write_map(found, tmp_path / "map.html")
    assert layout == "pca"
    assert '"groups": {}' in path.read_text()
