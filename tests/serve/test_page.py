"""The page in a real browser: every task, with a mouse, by keyboard, on a phone, in the dark."""

import base64
import contextlib
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from faster_coco_eval.core import mask as rle
from PIL import Image
from runs import OLD_RUNS
from serve.running import running

import vitreous
from vitreous.serve.page_files import SHARED

DROP = """([where, kind, files]) => {
  const data = new DataTransfer();
  for (const [name, text] of files)
    data.items.add(new File([Uint8Array.from(atob(text), c => c.charCodeAt(0))], name));
  const event = kind === "paste" ? new ClipboardEvent(kind, {clipboardData: data, bubbles: true})
    : new DragEvent(kind, {dataTransfer: data, bubbles: true, cancelable: true});
  document.querySelector(where).dispatchEvent(event);
}"""
PIXELS = """places => {
  const context = document.querySelector('.masks').getContext('2d');
  return places.map(([x, y]) => [...context.getImageData(x, y, 1, 1).data]);
}"""
CONTRAST = """selector => {
  const parse = text => {
    const canvas = new OffscreenCanvas(1, 1).getContext("2d");
    canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const one = document.querySelector(selector);
  let ground = one;
  while (parse(getComputedStyle(ground).backgroundColor)[3] < 255) ground = ground.parentElement;
  const [a, b] = [getComputedStyle(one).color, getComputedStyle(ground).backgroundColor]
    .map(each => light(parse(each))).sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
}"""


@contextlib.contextmanager
def opened(chromium, url, *, width=1200, expected=(), **options):
    """The page. An error on its console that is not expected, or a request to elsewhere, fails."""
    context = chromium.new_context(viewport={"width": width, "height": 850}, **options)
    page, errors, page.asked = context.new_page(), [], []
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("filechooser", lambda chooser: None)  # from now on it is caught, not shown
    page.goto(url)
    yield page
    context.close()
    assert [each for each in errors if not any(known in each for known in expected)] == []
    hosts = {
        urlsplit(each).netloc for each in page.asked if not each.startswith(("data:", "blob:"))
    }
    assert hosts == {urlsplit(url).netloc}


def give(page, kind, *paths, where="body"):
    files = [(path.name, base64.b64encode(path.read_bytes()).decode()) for path in paths]
    page.evaluate(DROP, [where, kind, files])


def choose(page, name, pane=1):
    page.select_option(f".pane:nth-child({pane}) .model select", name)


def headline(page, words, pane=1):
    where = f".pane:nth-child({pane}) .answer:not([hidden]) .headline"
    page.wait_for_selector(f'{where}:has-text("{words}")')


def look(page, pane=1):
    page.click(f".pane:nth-child({pane}) [data-mode=inside]")
    page.wait_for_selector(f"#pane{pane}-status:not(:empty)")
    return page.inner_text(f"#pane{pane}-status")


def answer(server, name, path, **options):
    files = {"image": (path.name, path.read_bytes())}
    found = server.client.post(f"/v1/models/{name}/predict", files=files, params=options)
    return found.json()["results"][0]


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth") <= 390


def visible(page, selector):
    return page.locator(f"{selector}:visible").count()


def test_every_task(chromium, server, photos):
    """An image is dropped once; then each model says what the API says, and can be looked into."""
    with opened(chromium, server.url) as page:
        page.wait_for_selector("#start:visible")
        give(page, "drop", photos[0])
        expected = {
            "vit": lambda found: found["label"],
            "tags": lambda found: ", ".join(each["label"] for each in found["labels"]),
            "detect": lambda found: f"{len(found['objects'])} object",
            "objects": lambda found: f"{len(found['objects'])} object",
            "segment": lambda found: f"{len(found['classes'])} class",
            "mae": lambda found: f"Loss {found['loss']:.4f}",
            "exported": lambda found: found["label"],
        }
        for name, words in expected.items():
            choose(page, name)
            headline(page, words(answer(server, name, photos[0])) or "No label")
            assert visible(page, "#start") == 0
            if name == "exported":
                assert page.locator("[data-mode=inside]").is_disabled()
                continue
            said = look(page)
            assert re.search(r"row \d+, column \d+: [\d.]+ %", said), said
            assert page.evaluate("document.querySelector('#pane1-over').width") > 300
            page.keyboard.press("Escape")  # while the button has the focus
            page.wait_for_selector(".answer:visible")
        choose(page, "vit")
        found = answer(server, "vit", photos[0], top=5)
        headline(page, found["label"])
        rows = page.locator(".score")
        assert [rows.nth(i).locator(".label").inner_text() for i in range(5)] == [
            each["label"] for each in found["top"]
        ]
        rows.nth(4).click()  # where is the least likely class?
        page.wait_for_selector(".stage:focus")
        last = found["top"][4]["label"]
        assert page.input_value("#pane1-what") == f"for the class {last}"
        assert page.inner_text("#pane1-status").startswith("Strongest in row")


def test_boxes_threshold_and_classes(chromium, server, photos):
    found = answer(server, "objects", photos[1], threshold=0.05, top=100)["objects"]
    assert len({each["label"] for each in found}) > 1
    with opened(chromium, server.url) as page:
        choose(page, "objects")
        give(page, "paste", photos[1])
        page.wait_for_selector(".headline")
        asked, slider = len(page.asked), page.locator(".slider input")
        scores = sorted(each["score"] for each in found)
        for cut in (0.05, round(scores[len(scores) // 2], 2), 1):
            slider.fill(str(cut))
            above = [each for each in found if each["score"] >= cut]
            assert visible(page, ".box") == visible(page, ".object") == len(above), cut
            headline(page, f"{len(above)} object")
            assert f"predict?threshold={cut:g}&" in page.locator("details pre").text_content()
        assert "the highest is" in page.inner_text(".headline")
        assert len(page.asked) == asked, "the threshold is the page's own business"
        slider.fill("0.05")
        name = found[0]["label"]
        mine = sum(each["label"] == name for each in found)
        toggle = page.locator(f'.classes label:has-text("{name}") input')
        toggle.uncheck()
        assert visible(page, ".box") == len(found) - mine
        toggle.check()
        height, width = 90, 60
        picture = page.locator(".pixels").bounding_box()
        for i, each in enumerate(found[:5]):
            box = page.locator(".box").nth(i).bounding_box()
            left, top, right, _ = each["box"]
            assert box["x"] == pytest.approx(picture["x"] + left / width * picture["width"], abs=1)
            assert box["y"] == pytest.approx(picture["y"] + top / height * picture["height"], abs=1)
            wide = max((right - left) / width * picture["width"], 4)  # at least its own lines
            assert box["width"] == pytest.approx(wide, abs=1)
        page.locator(".object").first.hover()
        assert visible(page, ".box.on") == 1
        assert page.locator(".box.on .tag").inner_text() == f"{name} {found[0]['score']:.2f}"


@pytest.mark.parametrize("name", ["segment", "objects"])
def test_masks_lie_where_they_are(chromium, server, photos, name):
    found = answer(
        server, name, photos[1], masks="rle", **({"top": 1} if name == "objects" else {})
    )
    model = next(m for m in server.client.get("/v1/models").json()["models"] if m["name"] == name)
    with opened(chromium, server.url) as page:
        choose(page, name)
        give(page, "drop", photos[1])
        page.wait_for_selector(".headline")
        if name == "objects":
            page.locator(".object").first.hover()  # then it lies above all others
        width, height = page.evaluate(
            "(c => [c.width, c.height])(document.querySelector('.masks'))"
        )
        assert (width, height) == (533, 800)
        for each in found.get("classes") or found["objects"]:
            mask = rle.decode(each["segmentation"])
            colour = model["colours"][model["labels"].index(each["label"])]
            places = list(zip(*mask.nonzero(), strict=True))[::17]
            drawn = [[int((x + 0.5) * 533 / 60), int((y + 0.5) * 800 / 90)] for y, x in places]
            for (*pixel, alpha), place in zip(page.evaluate(PIXELS, drawn), places, strict=True):
                # the canvas keeps colours multiplied by their alpha
                assert pixel == pytest.approx(colour, abs=4), (each["label"], place)
                assert alpha > 80
        assert visible(page, ".tag") >= 1, "never by colour alone"
        if name == "segment":  # why is this pixel what it is?
            page.locator(".surface").click(position={"x": 3, "y": 3})
            page.wait_for_selector("#pane1-status:has-text('The patch in row 1, column 1')")
            assert "y=0&x=0" in page.asked[-1]


def test_two_models_and_several_images(chromium, server, photos):
    with opened(chromium, server.url) as page:
        page.set_input_files("#files", photos[:3])
        page.wait_for_selector(".thumb >> nth=2")
        labels = [answer(server, "vit", path)["label"] for path in photos[:3]]
        for i, label in enumerate(labels):
            page.wait_for_selector(f'.item:nth-child({i + 1}) .caption:has-text("{label}")')
        page.click("#compare")
        headline(page, labels[0], 2)
        assert page.input_value(".pane:nth-child(2) .model select") == "exported", "the same task"
        choose(page, "segment", 2)
        headline(page, "class", 2)
        assert look(page, 2).startswith("The patch in row")
        headline(page, labels[0], 1)
        page.click(".thumb >> nth=2")
        headline(page, labels[2], 1)
        boxes = [page.locator(f".pane:nth-child({i})").bounding_box() for i in (1, 2)]
        assert boxes[0]["y"] == boxes[1]["y"], "side by side"
        assert boxes[1]["x"] > boxes[0]["x"] + boxes[0]["width"]
        page.click(".pane:nth-child(2) .close")
        assert visible(page, ".pane") == 1
        page.keyboard.press("Escape")
        page.locator(".thumb >> nth=2").focus()
        page.keyboard.press("ArrowLeft")
        headline(page, labels[1])
        page.keyboard.press("Delete")
        headline(page, labels[2])
        assert visible(page, ".thumb") == 2


def test_by_keyboard_alone(chromium, server, photos):
    with opened(chromium, server.url) as page:
        page.wait_for_selector(".pane")

        def tab_to(selector, most=25):
            for _ in range(most):
                page.keyboard.press("Tab")
                assert page.evaluate(
                    "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
                ), page.evaluate("document.activeElement.outerHTML")
                if page.evaluate(f"document.activeElement.matches('{selector}')"):
                    return
            pytest.fail(f"{selector} is not reached")

        tab_to("#choose", most=2)  # behind the link that skips
        with page.expect_file_chooser() as chooser:
            page.keyboard.press("Enter")
        chooser.value.set_files(photos[1])
        page.wait_for_selector(".headline")
        tab_to(".model select")
        page.keyboard.type("objects")
        page.wait_for_selector(".box")
        tab_to(".slider input")
        before = visible(page, ".box")
        page.keyboard.press("End")
        assert visible(page, ".box") < before
        page.keyboard.press("Home")
        assert visible(page, ".box") >= before > 0
        tab_to(".object")
        assert visible(page, ".box.on") == 1
        page.keyboard.press("Enter")
        page.wait_for_selector(".stage:focus")
        assert "The query that found" in page.inner_text("#pane1-status")
        page.keyboard.press("ArrowRight")
        page.wait_for_selector("#pane1-status:has-text('The patch in')")
        page.keyboard.press("Escape")
        page.wait_for_selector(".answer:visible")
        assert page.evaluate("document.activeElement.matches('[data-mode=inside]')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_in_both_schemes_and_chinese(chromium, server, photos, scheme):
    options = {"color_scheme": scheme, "has_touch": True, "is_mobile": True, "locale": "zh-CN"}
    with opened(chromium, server.url, width=390, **options) as page:
        page.wait_for_selector("text=点按选择图片")
        assert page.get_attribute("html", "lang") == "zh-Hans"
        assert page.get_attribute("#camera", "capture") == "environment"
        assert visible(page, "#photograph") == 1
        with page.expect_file_chooser() as chooser:
            page.tap("#photograph")
        chooser.value.set_files(photos[3])
        headline(page, "")
        assert fits(page)
        for name in ("detect", "segment", "tags"):
            choose(page, name)
            page.wait_for_selector(".slider")
            assert fits(page), name
        assert re.match(r"第 \d+ 行第 \d+ 列的图块最关注第", look(page))
        assert fits(page)
        shown = (".choices label", ".hint", ".about", "#pane1-status", "footer", "footer a")
        for selector in shown:
            assert page.evaluate(CONTRAST, selector) >= 4.5, selector
        page.click("[data-mode=answer]")
        page.wait_for_selector(".score")
        for selector in ("#choose", "#compare", ".score", ".slider", ".name", ".headline p", "h1"):
            assert page.evaluate(CONTRAST, selector) >= 4.5, selector
        page.click("#compare")
        headline(page, "", 2)
        assert fits(page)
        words = page.locator("[data-say]").all_text_contents()
        assert [each for each in words if not re.search("[一-龥]", each)] == []


def test_the_language_can_be_switched(chromium, server, photos):
    """What is shown stays, in other words."""
    with opened(chromium, server.url) as page:
        page.set_input_files("#files", photos[:2])
        headline(page, "confidence")
        page.select_option("#language", "zh")
        headline(page, "置信度")
        assert page.get_attribute(".remove >> nth=0", "title").startswith("移除")
        look(page)
        page.wait_for_selector("#pane1-head option:checked:not([value=mean])", state="attached")
        page.select_option("#pane1-what", "token 0")
        page.fill("#pane1-layer", "0")
        page.wait_for_selector("#pane1-status:has-text('类别标记最关注')")
        page.select_option("#language", "en")
        page.wait_for_selector("#pane1-status:has-text('The class token attends')")
        assert page.input_value("#pane1-layer") == "0"
        words = page.locator("[data-say]").all_text_contents()
        assert [each for each in words if re.search("[一-龥]", each)] == []


def test_problems_are_said_in_words(chromium, server, photos, tmp_path):
    bad = tmp_path / "notes.txt"
    bad.write_text("no image")
    large = tmp_path / "large.png"
    large.write_bytes(photos[0].read_bytes() + bytes(11_000_000))
    wide = tmp_path / "wide.png"
    Image.new("RGB", (2400, 1200), "red").save(wide)
    expected = ("status of 422", "status of 413", "status of 429", "ERR_INTERNET_DISCONNECTED")
    with opened(chromium, server.url, expected=expected) as page:
        give(page, "drop", bad)
        page.wait_for_selector('.problem:visible h2:has-text("This image cannot be used")')
        assert "notes.txt" in page.inner_text(".problem p")
        page.set_input_files("#files", large)
        page.wait_for_selector('.problem:visible h2:has-text("This file is too large")')
        give(page, "drop", photos[0])
        headline(page, answer(server, "vit", photos[0])["label"])
        assert visible(page, ".problem") == 0
        page.context.set_offline(True)
        choose(page, "tags")
        page.wait_for_selector('.problem:visible h2:has-text("No answer")')
        page.context.set_offline(False)
        page.click(".problem button")
        page.wait_for_selector(".slider")
        busy = {"type": "urn:vitreous:problem:queue-full", "detail": "busy"}
        answers = [{"status": 429, "headers": {"Retry-After": "1"}, "json": busy}]
        page.route(
            "**/segment/predict*",
            lambda route: route.fulfill(**answers.pop()) if answers else route.fallback(),
        )
        choose(page, "segment")
        page.wait_for_selector("text=The server is busy; trying again in 1 s")
        headline(page, "class")
        assert not answers
        give(page, "drop", wide)
        page.wait_for_selector(".name:has-text('wide.png')")
        headline(page, "class")
        assert page.evaluate("document.querySelector('.pixels').width") == 1600, "smaller, to draw"
        Image.new("RGB", (80, 40), "red").save(tmp_path / "scan.tif")
        give(page, "drop", tmp_path / "scan.tif")
        page.wait_for_selector(".name:has-text('scan.tif: This browser cannot show this file')")
        headline(page, "class")


def test_token_and_examples(chromium):
    """The page asks for the token; examples come from the run's own data, only if asked for."""
    token = "t" * 20
    with running(f"digits={OLD_RUNS / 'classify'}", token=token, examples=3) as server:
        listed = server.client.get("/v1/models/digits/examples").json()["examples"]
        assert [each["number"] for each in listed] == [0, 1, 2]
        picture = server.client.get("/v1/models/digits/examples/2")
        assert picture.headers["content-type"] == "image/png"
        assert server.client.get("/v1/models/digits/examples/3").status_code == 404
        with opened(chromium, server.url, expected=["status of 401"]) as page:
            page.click("#token button[type=button]")
            page.wait_for_selector("#token", state="hidden")
            page.set_input_files(
                "#files", {"name": "a.png", "mimeType": "image/png", "buffer": picture.content}
            )
            page.wait_for_selector("#token[open]")
            assert not page.is_visible("#token p")
            page.fill("#token input", "wrong")
            page.keyboard.press("Enter")
            page.wait_for_selector("#token[open] input:placeholder-shown")
            assert page.inner_text("#token p") == "This token is wrong."
            page.fill("#token input", token)
            page.keyboard.press("Enter")
            page.wait_for_selector("#examples .thumb >> nth=2")
            page.click("#examples .thumb >> nth=2")
            files = {"image": ("a.png", picture.content)}
            found = server.client.post("/v1/models/digits/predict", files=files).json()
            headline(page, found["results"][0]["label"])
            with page.expect_popup() as described:
                page.click("#description")
                described.value.wait_for_url("blob:**")
            assert '"/v1/models/{name}/predict"' in described.value.content()


def test_without_the_option_there_are_no_examples(server):
    assert server.client.get("/v1/models/vit/examples").json() == {"examples": []}
    assert server.client.get("/v1/models/vit/examples/0").status_code == 404


def test_the_page_is_small_and_strict(server):
    """No script or style of another place, or inside the page."""
    page = server.client.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    folder = Path(vitreous.__file__).parent
    shared = [folder / "pages" / "templates" / name for name in SHARED]
    files = [*(folder / "serve" / "page").iterdir(), *shared]
    for path in files:
        assert server.client.get(f"/page/{path.name}").content == path.read_bytes()
    assert sum(path.stat().st_size for path in files) < 100_000
    assert "http:" not in page.text.replace("http://www.w3.org/2000/svg", "")
