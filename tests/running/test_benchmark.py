"""`vitreous benchmark`: what it compares has the same weights and answers, and is measured."""

import json
import sys

import pytest
from runs import vit_file
from shared import printed, refused

from vitreous.api import summary
from vitreous.cli.main import main
from vitreous.deploy import candidates
from vitreous.errors import ConfigError

SMALL_DETR = [
    *("backbone=resnet-18", "backbone.norm=frozen", "dim=32", "heads=4", "mlp_dim=32"),
    *("encoder_depth=1", "decoder_depth=1", "queries=5", "classes=5"),
]


pytestmark = pytest.mark.usefixtures("cache")


def benchmarked(capsys, *words):
    assert main(["benchmark", *map(str, words), "--rounds", "2", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_beside_other_libraries(cache, tmp_path, capsys):
    """The same weights everywhere: all outputs agree, and all are timed."""
    found = benchmarked(
        *(capsys, "vit-ti/32", "--set", "depth=2", "--batch", "1,2", "--no-memory"),
        *("--engines", "torch", "onnxruntime", "--figure", tmp_path / "speed.png"),
        *("--against", "timm,transformers", "torchvision", "openvino"),
    )
    ways = ["torch", "onnxruntime", "timm", "transformers", "torchvision", "timm+openvino"]
    assert [(each["batch"], each["way"]) for each in found["timings"]] == [
        (batch, way) for batch in (1, 2) for way in ways
    ]
    for each in found["timings"]:
        assert each["difference"] < 1e-4
        assert each["agreement"] == 1
        assert 0 < each["best"] <= each["median"] <= each["p95"]
    assert found["flops"] == sum(row.flops for row in summary("vit-ti/32", depth=2))
    assert (tmp_path / "speed.png").stat().st_size > 5000
    assert not cache.exists()  # random weights are not kept


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_memory_is_that_of_weights_and_activations(capsys):
    fields = [f"--set={each}" for each in ("dim=768", "heads=12", "mlp_dim=3072", "depth=4")]
    words = ("vit-ti/32", *fields, "--batch", "1", "--engines", "torch")
    (found,) = benchmarked(capsys, *words)["timings"]
    weights = 4 * sum(row.parameters for row in summary("vit-b/32", depth=4))  # bytes
    assert 1 < found["memory"] / weights < 1.6


def test_a_detector_by_its_name(capsys):
    fields = [word for each in SMALL_DETR for word in ("--set", each)]
    words = ("detr-r50", "--image-size", 64, *fields, "--batch", 2, "--no-memory")
    found = benchmarked(capsys, *words, "--engines", "torch", "--against", "transformers,timm")
    assert [each["way"] for each in found["timings"]] == ["torch", "transformers"]
    assert all(each["difference"] < 1e-4 for each in found["timings"])
    assert "timm" in found["left_out"]


def test_an_exported_file(capsys):
    found = benchmarked(
        capsys, vit_file(".onnx"), "--batch", "1", "--no-memory", "--against", "timm"
    )
    assert [each["way"] for each in found["timings"]] == ["onnxruntime", "openvino"]
    assert found["reference"] == "onnxruntime"
    assert all(each["difference"] < 1e-4 for each in found["timings"])
    assert "timm" in found["left_out"]


def without(monkeypatch, *engines):
    """As if engines were not installed."""

    def build(way, *given, **options):
        if way.engine in engines:
            raise ConfigError(f"{way.engine} is not installed")
        return candidates.build(way, *given, **options)

    monkeypatch.setattr("vitreous.deploy.benchmark.build", build)


def test_an_exported_file_without_its_usual_engine(capsys, monkeypatch):
    file = vit_file(".onnx")
    without(monkeypatch, "onnxruntime")
    found = benchmarked(capsys, file, "--batch", "1", "--no-memory")
    assert [each["way"] for each in found["timings"]] == ["openvino"]
    assert found["reference"] == "openvino"
    assert found["timings"][0]["agreement"] == 1
    assert found["left_out"] == {"onnxruntime": "onnxruntime is not installed"}
    without(monkeypatch, "onnxruntime", "openvino")
    assert "nothing can be measured: onnxruntime: onnx" in refused("benchmark", file, "--no-memory")


def test_a_run_without_any_engine_that_was_asked_for(run, capsys, monkeypatch):
    without(monkeypatch, "openvino")
    assert main(["benchmark", str(run), "--engines", "openvino", "--no-memory"]) == 2
    assert "nothing can be measured: openvino: openvino is not" in capsys.readouterr().err


def test_a_run_as_a_table(run):
    words = ["--batch", "2", "--rounds", "2", "--engines", "torch", "--no-memory"]
    said = printed("benchmark", run, *words)
    assert "torch" in said
    assert "openvino" not in said


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--engines", "tensorrt"], "engine = 'tensorrt'"),
        (["--precision", "int4"], "precision = 'int4'"),
        (["--against", "jax"], "against = 'jax'"),
        (["--against", "timm+int8"], "against = 'timm+int8'"),
        (["--rounds", "1"], "expected at least 2"),
        (["--batch", "two"], "expected whole numbers"),
        (["--image-size", "64"], "is no model's name"),
        (["--figure", "speed.doc"], "ends in .png"),
    ],
)
def test_it_refuses(run, words, reason):
    assert reason in refused("benchmark", run, *words)
