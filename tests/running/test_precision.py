"""Lower precisions: what each file carries, what it loses on real data, and who may have it."""

import logging
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import onnx
import pytest
import torch
from runs import VIT, made, write_run
from shared import printed

import vitreous
from vitreous.data.formats import open_source
from vitreous.data.preprocess import Preprocess
from vitreous.deploy import engine as engines
from vitreous.deploy import export as exporting
from vitreous.deploy import quantise
from vitreous.deploy.export import fault
from vitreous.deploy.loss import Loss, Trial, measured_loss
from vitreous.deploy.quantise import kept_of_onnx
from vitreous.engines import graph, precision
from vitreous.engines.threads import TorchThreads
from vitreous.errors import ConfigError
from vitreous.import_run import open_run
from vitreous.inference import InferenceOptions
from vitreous.run_folder import Run
from vitreous.train.recipe import Recipe, write_recipe

SMALL = {"patch": 2, "dim": 64, "depth": 2, "heads": 2, "mlp_dim": 128, "pool": "flatten"}
RIDGE = 3.0
VNNI = precision.has_bfloat16()
"""Whether lower precision is computed as such here, and not only stored."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model whose head was fitted to the digits by ridge regression, so that there is something
    to lose: training it all would take longer."""
    torch.manual_seed(0)
    fields = {"image_size": 8, "channels": 1, "classes": 10}
    model = vitreous.create("vit", **fields, **SMALL)
    with torch.no_grad():  # as large as after training: features that differ from image to image
        for weight in (each for each in model.parameters() if each.ndim > 1):
            weight.normal_(0, weight[0].numel() ** -0.5)
    source = open_source("digits")
    prepared = Preprocess(image_size=8, channels=1, mean=(0.3,), std=(0.37,))
    train = source.splits["train"]
    classes = torch.nn.functional.one_hot(torch.tensor([each.target for each in train]), 10)
    with torch.no_grad():
        batch = torch.stack([prepared(source.image(each)) for each in train])
        vectors = model.eval().outputs(batch)["vectors"]
        ones = torch.cat((vectors, torch.ones(len(vectors), 1)), dim=1)
        # with a ridge: weights that nearly cancel each other would lose all in sixteen bits
        gram = ones.T @ ones + RIDGE * torch.eye(ones.shape[1])
        found = 10 * torch.linalg.solve(gram, ones.T @ classes.float())
        model.head.out.weight.copy_(found[:-1].T)
        model.head.out.bias.copy_(found[-1])
    path = tmp_path_factory.mktemp("runs") / "digits"
    folder = write_run(path, model, source.labels, prepared)
    folder.write_text("recipe.toml", write_recipe(Recipe(data="digits")))
    return path


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))


def on_a_cpu(monkeypatch, able):
    """One that computes in bfloat16, or does not."""
    for module in (precision, engines, graph):
        monkeypatch.setattr(module, "has_bfloat16", lambda: able)


def some_digits(count=8):
    source = open_source("digits")
    return [source.image(sample) for sample in source.splits["test"][:count]]


def export(run, path, **options):
    return vitreous.export(run, path, log=lambda text: None, **options)


def load(run, said=None, **options):
    return vitreous.load(run, log=(lambda text: None) if said is None else said.append, **options)


# ---- files


def test_int8_of_a_trained_model(run, tmp_path):
    """What it loses is measured by the same path as everything: evaluate says the same."""
    path = tmp_path / "digits.xml"
    said = printed("export", run, path, "--precision", "int8", "--max-loss", "3")
    assert "(OpenVINO in int8" in said
    assert "measured accuracy 0." in said
    file = load(path)
    assert file.engine.precision == "int8"
    exact, lower = (vitreous.evaluate(each, "digits", "test") for each in (run, path))
    assert exact["accuracy"] > 0.6
    assert exact["accuracy"] - lower["accuracy"] <= 0.03
    whole = load(run)
    images = some_digits()
    both = zip(whole(images), file(images), strict=True)
    differ = max(abs(one.score - other.score) for one, other in both)
    assert 1e-5 < differ < 0.2  # integers were computed with, and not badly
    with pytest.raises(ConfigError, match="was exported in int8: take the run folder"):
        load(path, precision="bfloat16")


def test_what_loses_more_is_not_written(run, tmp_path, monkeypatch):
    """Of an engine that has forgotten everything, all points are lost."""
    monkeypatch.setattr(
        exporting.GraphEngine, "__call__", lambda self, images: torch.zeros(len(images), 10)
    )
    with pytest.raises(exporting.ExportError, match=r"float16 costs more than 0\.5 points: accur"):
        export(run, tmp_path / "a.onnx", precision="fp16", data="digits", images=100)
    assert not list(tmp_path.iterdir())


def test_what_is_good_enough():
    """float32 by its outputs; a lower precision by its loss, or else by its agreement."""
    lost = Loss("accuracy", 0.9, 0.894, 0.6, 0.99, 100)
    assert not fault("torch", "float32", 9e-5, 0.5, None, 0.5)
    assert "differs from torch by 2.0e-04" in fault("torch", "float32", 2e-4, 1.0, None, 0.5)
    assert not fault("torch", "int8", 0.3, 0.8, lost, 0.7)
    assert "0.60 points lost" in fault("torch", "int8", 0.3, 0.8, lost, 0.5)
    assert "costs more" in fault("torch", "int8", 0.3, 0.8, replace(lost, points=math.nan), 0.5)
    assert not fault("torch", "int8", 0.3, 0.8, replace(lost, interval=(0.5, 2)), 0.5)
    certain = fault("torch", "int8", 0.3, 0.8, replace(lost, interval=(0.51, 2)), 0.5)
    assert "0.60 points lost (95 % interval of the points lost: 0.51 to 2.00)" in certain
    assert not fault("torch", "bfloat16", 0.3, 0.95, None, 0.5)
    assert "agree with float32's to 80.00%" in fault("torch", "bfloat16", 0.3, 0.8, None, 0.5)


@pytest.mark.parametrize(("wrong", "written"), [(3, True), (15, False)])
def test_a_loss_that_may_be_chance_is_written_with_its_interval(
    run, tmp_path, monkeypatch, wrong, written
):
    """One point of 300 images are three images; five points are more than chance."""
    exact, seen = exporting.GraphEngine.__call__, []

    def forgetful(self, images):
        """Wrong about a few of those that are measured: the model knows most of them."""
        logits = exact(self, images)
        if len(images) > 5:  # more than are verified at once
            seen.extend(images)
            logits[: max(wrong - len(seen) + len(images), 0)] *= -1
        return logits

    monkeypatch.setattr(exporting.GraphEngine, "__call__", forgetful)
    said, path = [], tmp_path / "a.onnx"
    options = {"precision": "fp16", "data": "digits", "images": 300, "max_loss": 0.1}
    if not written:
        with pytest.raises(exporting.ExportError, match=r"95 % interval of the points lost: [1-9]"):
            vitreous.export(run, path, log=said.append, **options)
        return
    loss = vitreous.export(run, path, log=said.append, **options).loss
    low, high = loss.interval
    assert low <= 0.1 < loss.points <= high
    assert any("may be chance: 300 images cannot tell" in line for line in said)


def test_what_nncf_imports_in_its_work_does_not_warn_of_missing_gpus(monkeypatch, caplog):
    class Library:
        Dataset = IgnoredScope = staticmethod(lambda *given, **options: None)
        ModelType = SimpleNamespace(TRANSFORMER=None)

        @staticmethod
        def quantize(model, *given, **options):
            for name in ("torch.utils.cpp_extension", "nncf"):
                logging.getLogger(name).warning("No CUDA runtime is found")
            return model

    monkeypatch.setattr(quantise, "nncf_library", lambda: Library)
    assert quantise.quantised("model", [], []) == "model"
    assert not caplog.records
    logging.getLogger("nncf").warning("afterwards")
    assert len(caplog.records) == 1


@pytest.fixture(scope="module")
def half(run, tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "half.onnx"
    return export(run, path, precision="fp16", data="digits")


def test_float16_halves_the_file(run, half):
    """Its weights are stored in it, and what is computed is the same but for rounding."""
    stored = onnx.load(half.path).graph.initializer
    count = sum(each.numel() for each in Run(run).create_model().parameters())
    assert sum(len(each.raw_data) for each in stored) < 2.6 * count
    assert 1e-5 < half.difference < 5e-3
    assert half.loss.points <= 0.5
    assert half.loss.images == len(open_source("digits").splits["test"])
    assert load(half.path).engine.precision == "float16"


def test_first_and_last_layers_are_found(half):
    """Behind the patches, and before logits and vectors: not all that the residual stream joins."""
    model = onnx.load(half.path)
    names = kept_of_onnx(model)
    layers = [node.name for node in model.graph.node if node.op_type in ("MatMul", "Gemm")]
    assert layers[0] in names
    assert layers[-1] in names
    assert len(names) < len(layers)
    said = half.path.read_bytes()
    assert b"attention.py" not in said  # nor paths of the machine that wrote it


def test_only_attention_multiplies_no_weight(tmp_path):
    """A last block that computes the class token alone takes parts of its weights; in a file they
    are weights of their own, or int8 has nothing to quantise there (NNCF ended with an error)."""
    folder = made(tmp_path / "run", "classify", "vit", **{**VIT, "dim": 192, "mlp_dim": 384})
    model = onnx.load(export(folder, tmp_path / "model.onnx").path)
    weights = {each.name for each in model.graph.initializer}
    layers = [node for node in model.graph.node if node.op_type == "MatMul"]
    products = [node.name for node in layers if not weights & {*node.input}]
    assert len(products) == 2 * VIT["depth"]
    assert {*products} <= {*kept_of_onnx(model)}
    assert len(kept_of_onnx(model)) < len(layers)


@pytest.mark.skipif(not VNNI, reason="this CPU does not compute in bfloat16")
@pytest.mark.parametrize("suffix", [".xml", ".pt2"])
def test_bfloat16_files(run, tmp_path, suffix):
    done = export(run, tmp_path / f"model{suffix}", precision="bf16", data="digits", images=100)
    assert 1e-4 < done.difference < 5e-2
    assert done.loss.agreement > 0.95
    assert load(done.path, precision="bfloat16").engine.precision == "bfloat16"


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("a.onnx", {"precision": "bf16"}, "ONNX Runtime does not compute in it on a CPU"),
        ("a.pt2", {"precision": "fp16"}, "torch would compute in it, which CPUs are slow at"),
        ("a.pt2", {"precision": "int8"}, "write .xml or .onnx"),
        ("a.xml", {"precision": "int4"}, "precision = 'int4' is not known"),
        ("a.xml", {"max_loss": 1.0}, "max_loss is about a lower precision"),
        ("a.xml", {"precision": "fp16", "images": 9}, "images is about what is lost on data"),
        ("a.xml", {"precision": "int8", "max_loss": -1.0}, "expected points, from 0 to 100"),
    ],
)
def test_what_makes_no_sense(run, tmp_path, name, options, reason):
    with pytest.raises(ConfigError, match=reason):
        export(run, tmp_path / name, **options)


def test_images_without_labels_are_compared(run):
    """As many points as predictions that differ; images to calibrate with are others."""
    trial = Trial.of(open_source("digits").unlabelled(), 60)
    assert not {s.id for s in trial.calibration} & {s.id for s in trial.measured}
    predictor = load(run)
    loss = measured_loss(predictor, predictor.engine, trial, print)
    assert (loss.metric, loss.points, loss.agreement, loss.images) == ("", 0, 1, 60)

    def constant(images):
        return torch.zeros(len(images), 10)

    loss = measured_loss(predictor, constant, trial, print)
    assert loss.points == pytest.approx(100 * (1 - loss.agreement))
    assert loss.points > 60
    labelled = measured_loss(predictor, constant, Trial.of(open_source("digits"), 60), print)
    assert labelled.metric == "accuracy"
    assert labelled.value < 0.2 < labelled.float32
    assert labelled.points == pytest.approx(100 * (labelled.float32 - labelled.value))


# ---- engines


@pytest.mark.skipif(not VNNI, reason="this CPU does not compute in bfloat16")
def test_bfloat16_by_torch(run):
    exact, lower = load(run), load(run, precision="bf16")
    assert lower.engine.precision == "bfloat16"
    images = some_digits()
    both = zip(exact(images), lower(images), strict=True)
    assert 1e-5 < max(abs(one.score - other.score) for one, other in both) < 0.05
    vectors = lower.embed(images)
    assert vectors.dtype == "float32"
    torch.testing.assert_close(
        torch.tensor(vectors), torch.tensor(exact.embed(images)), rtol=0.1, atol=0.05
    )
    # explanations look into the model in float32
    torch.testing.assert_close(
        lower.explain(images[0]).rollout, exact.explain(images[0]).rollout, rtol=0, atol=0
    )


def test_bfloat16_where_the_cpu_lacks_it(run, tmp_path, monkeypatch):
    on_a_cpu(monkeypatch, able=False)
    for engine in ("torch", "openvino", "auto"):
        with pytest.raises(ConfigError, match="up to 100 times slower: use float32"):
            load(run, engine=engine, precision="bfloat16")
    with pytest.raises(ConfigError, match="up to 100 times slower"):
        export(run, tmp_path / "a.xml", precision="bf16")
    assert engines.possible("torch", "auto") == [engines.Way("torch", "float32")]


def test_combinations_that_there_are_not(run, monkeypatch):
    on_a_cpu(monkeypatch, able=True)
    with pytest.raises(ConfigError, match="'torch' does not compute in int8 here: use onnxruntime"):
        load(run, engine="torch", precision="int8")
    with pytest.raises(ConfigError, match="'onnxruntime' does not compute in bfloat16 here"):
        load(run, engine="onnxruntime", precision="bf16")
    with pytest.raises(ConfigError, match="runs on the CPU"):
        load(run, precision="int8", device="cuda")


def test_int8_without_data(run, tmp_path):
    with pytest.raises(
        ConfigError, match=r"cannot be used: no data is given\nexport it with others"
    ):
        engines.load_with(open_run(run), InferenceOptions(engine="openvino", precision="int8"))


def test_auto_takes_what_is_fast_and_agrees(run, monkeypatch):
    """bfloat16 is twice as fast here; where one prediction differs, float32 is taken."""
    on_a_cpu(monkeypatch, able=True)
    asked = []

    def seconds(predictor, images):
        asked.append(predictor.engine.precision)
        return {"float32": 0.2, "bfloat16": 0.1}[predictor.engine.precision]

    monkeypatch.setattr(engines, "_seconds", seconds)
    said = []
    for _ in range(2):
        chosen = load(run, said, engine="torch", precision="auto").engine
        assert chosen.precision == "bfloat16"
        assert "engine: torch bfloat16, the fastest here (ms per image: torch 50.0" in said[-1]
    assert asked == ["float32", "bfloat16"] * engines.ROUNDS  # once
    monkeypatch.setattr(engines, "agreement_of", lambda *given: 15 / 16)
    chosen = load(run, said, engine="torch", precision="auto", threads=1).engine
    assert chosen.precision == "float32"
    assert any("torch bfloat16 is left out: its predictions agree" in text for text in said)


def test_threads_of_one_engine_are_its_own(run):
    """Those of the caller, and of new threads, stay what they are."""
    before = torch.get_num_threads()
    one, three = TorchThreads(1), TorchThreads(3)
    assert (one(torch.get_num_threads), three(torch.get_num_threads)) == (1, 3)
    fresh = []
    thread = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert (torch.get_num_threads(), fresh) == (before, [before])
    predictor, image = load(run, threads=1), some_digits(1)[0]
    wanted = load(run)(image).score
    with ThreadPoolExecutor(4) as pool:
        scores = list(pool.map(lambda _: predictor(image).score, range(8)))
    assert scores == pytest.approx([wanted] * 8, abs=1e-6)
    with pytest.raises(ConfigError, match="threads = 0"):
        load(run, threads=0)
