"""The training report: of a classifier, and what it says of every run."""

import re
import shutil
from dataclasses import replace

import pytest
import torch
from browser import assert_all_is_shown
from PIL import Image
from runs import OLD_RUNS, of_digits
from train.undrawn import undrawn

from vitreous.api.report import write_report
from vitreous.data.formats import open_source
from vitreous.loading import predictor_of
from vitreous.pages.report import loss_terms, scheduled
from vitreous.run_folder import Run
from vitreous.train.open_data import open_usable, stored_recipe
from vitreous.train.recipe import Recipe, write_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with random weights."""
    return of_digits(tmp_path_factory.mktemp("runs") / "run")


def undrawn_report(*given):
    with undrawn():
        return write_report(*given)[0].read_text()


def facts(text):
    return dict(re.findall(r"<tr><th>(.*?)</th><td>(.*?)</td></tr>", text))


@pytest.fixture(scope="module")
def report(run):
    return write_report(run, open_source("digits"))


def test_report_is_one_page_with_what_it_promises(report):
    page, split, result = report
    text = page.read_text()
    assert split == "test"
    assert f"<b>{100 * result['accuracy']:.2f} %</b><span>accuracy</span>" in text
    assert "measured on test, 359 images" in text
    where = re.findall('<p class="soft measured">(.*?)</p>', text)
    # the curves are of val, and what follows of the split that is measured
    assert where[:5] == ["val, 143 images", *["test, 359 images"] * 4]
    assert set(where[5:]) == {"images of test"}
    # loss, accuracy, learning rate; confusion, reliability; inside: four images, distances,
    # filters, positions
    assert text.count("<svg") == 3 + 2 + 7
    assert text.count('alt="input"') == min(24, result["samples"])
    titles = re.findall("<h2>(.*?)</h2>", text)
    for title in (
        *("Learning curves", "Confusion matrix", "Reliability diagram (calibration)"),
        *("Most confident errors", "Classes, the hardest first", "Facts", "What next"),
    ):
        assert title in titles
    assert not re.search(r"""(src|href)=["']http""", text), "nothing is fetched from elsewhere"
    rows = re.findall(r"<tr><td>(\d)</td>", text)
    f1 = {name: row["f1"] for name, row in result["classes"].items()}
    assert rows == sorted(f1, key=f1.get)
    assert page.stat().st_size < 500_000


def test_the_report_in_chinese(chromium, report):
    """Headings and fixed sentences; numbers and what a task says about them stay English."""
    page = chromium.new_page(viewport={"width": 390, "height": 800}, locale="zh-CN")
    page.goto(report[0].as_uri())
    assert page.inner_text(".eyebrow") == "训练报告"
    shown = "h2, h3, nav a, dt, .headline span:first-of-type"
    for words in page.locator(shown).all_text_contents():
        assert re.search("[一-龥]", words), words
    assert page.inner_text(".headline .first").splitlines()[1:2] == ["准确率（test）"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.select_option("#language", "en")
    assert page.inner_text(".headline .first").splitlines()[1:2] == ["accuracy on test"]
    assert not any(re.search("[一-龥]", words) for words in page.locator(shown).all_text_contents())
    page.close()


def test_the_report_says_what_was_trained_on_what(run, tmp_path):
    album = tmp_path / "my album"
    source = open_source("digits")
    for sample in source.splits["train"]:
        folder = album / str(sample.target)
        folder.mkdir(parents=True, exist_ok=True)
        if len(list(folder.iterdir())) < 2:
            Image.fromarray(source.image(sample)[0].numpy()).save(folder / f"{sample.id}.png")
    (album / "3" / "bad.png").write_bytes(b"")
    own = Run(tmp_path / "own")
    shutil.copytree(run.path, own.path)
    own.write_config(replace(run.read_config(), data=str(album), weights="elsewhere.npz"))
    recipe = Recipe(data=str(album), on_bad="skip", epochs=4, batch=16, lr=5e-4)
    own.write_text("recipe.toml", write_recipe(recipe))
    source = open_usable(recipe, lambda note: None)
    source.splits["test"] = source.splits["train"][:3]
    text = undrawn_report(own, source)
    assert "<h1>vit on my album</h1>" in text, "not where it is"
    parameters = sum(p.numel() for p in run.read_config().create().parameters())
    expected = {
        "data": str(album),
        "images": "10 train, 10 val, 3 test",
        "left out": "1 that cannot be used: 3/bad.png",
        "parameters": f"{parameters:,}",
        "image_size": "8 × 8",
        "started from": "elsewhere.npz",
        "epochs": "1 of 4",
        "batch size": "16",
        "learning rate": "0.0005",
        "dim": "16",
        "torch": torch.__version__,
    }
    assert expected.items() <= facts(text).items()


@pytest.mark.parametrize("device", ["cpu", None])
def test_the_report_is_computed_where_the_run_was_trained(run, tmp_path, monkeypatch, device):
    own, asked = Run(tmp_path / "own"), []
    shutil.copytree(run.path, own.path)
    own.write_text("recipe.toml", write_recipe(Recipe(device=device)))

    def noted(opened, options):
        asked.append(options.device)
        return predictor_of(opened, options)

    monkeypatch.setattr("vitreous.api.report.predictor_of", noted)
    undrawn_report(own, open_source("digits"))
    assert asked == [device]


@pytest.mark.parametrize("kind", ["", "coco:"])
def test_titles_have_no_absolute_paths(run, tmp_path, kind):
    """Nor is there JSON at the end, but what to do next."""
    own = Run(tmp_path / "own")
    shutil.copytree(run.path, own.path)
    own.write_config(replace(run.read_config(), data=f"{kind}{tmp_path}/my album/"))
    text = undrawn_report(own, open_source("digits"))
    for tag in ("h1", "title"):
        assert re.findall(f"<{tag}>(.*?)</{tag}>", text) == ["vit on my album"]
    assert "<pre" not in text
    assert "&#34;:" not in text
    assert text.index("<h2>What next</h2>") > text.index("<h2>Facts</h2>")
    assert f"vitreous predict {own.path} IMAGES" in text


def test_a_run_without_evaluations_has_a_report(run, tmp_path):
    own = Run(tmp_path / "own")
    shutil.copytree(run.path, own.path)
    (own.path / "metrics.jsonl").unlink()
    (own.path / "recipe.toml").unlink()
    text = undrawn_report(own, open_source("digits"), "train")
    assert "<h2>Learning curves</h2>" not in text
    assert "<b>These images were trained on.</b>" in text


@pytest.mark.parametrize("kind", ["classify", "detect", "segment"])
def test_the_learning_rate_is_drawn_with_its_warm_up(kind):
    """Every step of the schedule, not one point for each evaluation."""
    old = Run(OLD_RUNS / kind)
    recipe = stored_recipe(old)
    evaluations = [m for m in old.metrics() if m["kind"] == "evaluation"]
    (points,) = scheduled(evaluations, recipe).values()
    assert len(points) == evaluations[-1]["step"]
    for each in evaluations:
        assert points[each["step"] - 1] == pytest.approx((each["epoch"], each["lr"]))
    warm = round(recipe.warmup * len(points))
    rates = [rate for _, rate in points]
    assert max(rates) == pytest.approx(recipe.lr)
    assert rates[:warm] == pytest.approx([recipe.lr * (i + 1) / warm for i in range(warm)])
    (few,) = scheduled(evaluations, recipe, most=4).values()
    assert len(few) < 9
    assert max(few, key=lambda point: point[1]) == max(points, key=lambda point: point[1])
    assert few[-1] == points[-1]
    longer = replace(recipe, epochs=2 * recipe.epochs)
    assert scheduled(evaluations, longer) == {}, "it was not the schedule of these steps"
    assert scheduled(evaluations, None) == {}


def test_the_report_in_a_browser(chromium, report):
    assert_all_is_shown(chromium, report[0])


def test_the_terms_of_a_loss_have_charts():
    logged = [{"loss_class": 1, "loss_aux_class": 1}, {"loss_box": 1, "loss": 3, "lr": 1}]
    assert loss_terms(logged) == {
        "loss, by term": {"loss_class": "class", "loss_box": "box"},
        "loss of earlier layers": {"loss_aux_class": "class"},
    }
    assert loss_terms([{"loss": 1}]) == {}
    many = loss_terms([{f"loss_{i}": 1 for i in range(4)}])
    assert [len(keys) for keys in many.values()] == [3, 1]
