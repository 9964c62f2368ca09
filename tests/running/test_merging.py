"""Token merging where models are used: loaded, exported, evaluated, embedded."""

import json

import numpy as np
import pytest
import torch
from shared import refused

import vitreous
from vitreous.cli.main import main
from vitreous.data.formats import open_source
from vitreous.deploy import engine
from vitreous.deploy import export as exporting
from vitreous.embed.compute import model_hash
from vitreous.engines.fewer_tokens import merge_tokens
from vitreous.engines.graph import read_file
from vitreous.errors import ConfigError
from vitreous.import_run import open_run


@pytest.fixture(scope="module")
def pictures():
    source = open_source("shapes:8")
    return [source.image(sample) for sample in source.splits["train"]][:5]


@pytest.mark.parametrize("suffix", [".xml", ".pt2"])
def test_a_file_merges_as_its_run_does(run, pictures, suffix, tmp_path):
    file = tmp_path / f"model{suffix}"
    done = vitreous.export(run, file, merge=9, input="uint8", log=lambda text: None)
    assert done.difference < 1e-4
    assert done.merging["merge"] == 9
    torch_one, exported = vitreous.load(run, merge=9), vitreous.load(file)
    for ours, theirs in zip(torch_one(pictures), exported(pictures), strict=True):
        assert ours.scores == pytest.approx(theirs.scores, abs=1e-4)
    np.testing.assert_allclose(exported.embed(pictures), torch_one.embed(pictures), atol=1e-4)
    plain = vitreous.load(run)(pictures)
    assert any(
        abs(a.score - b.score) > 1e-4 for a, b in zip(plain, exported(pictures), strict=True)
    )
    assert vitreous.load(file, merge=9)
    with pytest.raises(ConfigError, match="exported with merge = 9, which cannot be changed"):
        vitreous.load(file, merge=4)


def test_an_engine_that_merges_otherwise_is_found(run, tmp_path, monkeypatch):
    """Rounding may choose another pair of tokens; an engine that is wrong must not hide behind
    that."""
    traced = exporting.traced

    def wrong(module, *options, **more):
        merge_tokens(module.model, 8)
        return traced(module, *options, **more)

    monkeypatch.setattr(exporting, "traced", wrong)
    with pytest.raises(exporting.ExportError, match="differs from torch"):
        vitreous.export(run, tmp_path / "model.pt2", merge=9, log=lambda text: None)
    assert not list(tmp_path.iterdir())


def test_a_tie_is_tried_again(run, monkeypatch):
    """One image of three differs, and with noise it does not."""
    seen = iter([torch.tensor([1e-6, 0.1, 1e-6]), torch.tensor([0.2, 2e-6, 1e-6])])
    monkeypatch.setattr(exporting, "_differences", lambda *given: next(seen))
    model = vitreous.load(run, merge=9).model
    assert exporting.difference(model, None, torch.zeros(3, 3, 64, 64)) == pytest.approx(2e-6)
    seen = iter([torch.tensor([0.1])])
    merge_tokens(model, 0)
    assert exporting.difference(model, None, torch.zeros(1, 3, 64, 64)) == pytest.approx(0.1)


def test_an_engine_merges_too(run, pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    merged, expected = (vitreous.load(run, engine=e, merge=9) for e in ("onnxruntime", "torch"))
    for ours, theirs in zip(merged(pictures), expected(pictures), strict=True):
        assert ours.scores == pytest.approx(theirs.scores, abs=1e-4)
    (file,) = tmp_path.glob("engines/*/model.onnx")
    assert json.loads(read_file(file).note.run)["merge"] == 9
    assert file.parent != engine._place(open_run(run), 0)  # other files without


def test_it_is_compared_with_the_model_itself(run, capsys):
    names = ("red", "green", "blue", "grey", "black")
    data = [(torch.rand(3, 64, 64), names[number % 5]) for number in range(12)]
    alone, result = vitreous.evaluate(run, data), vitreous.evaluate(run, data, merge=30)
    plain, merged = result["merging"]
    assert (plain["merge"], plain["agreement"], plain["speed"], plain["points_lost"]) == (
        0,
        1,
        1,
        0,
    )
    assert plain["score"] == alone["accuracy"]
    assert (merged["merge"], merged["score"]) == (30, result["accuracy"])
    assert merged["points_lost"] == pytest.approx(100 * (alone["accuracy"] - result["accuracy"]))
    assert merged["images_per_second"] == pytest.approx(
        merged["speed"] * plain["images_per_second"]
    )
    images = [image for image, _ in data]
    both = zip(*(vitreous.load(run, merge=r)(images) for r in (0, 30)), strict=True)
    assert merged["agreement"] == pytest.approx(sum(a.label == b.label for a, b in both) / 12)
    assert main(["evaluate", str(run), "--merge-curve", "4", "8"]) == 2
    assert "evaluate has no option --merge-curve: it is gone" in capsys.readouterr().err


def test_commands_take_it(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run), "model.pt2", "--merge", "9"]) == 0
    assert "merging 9 patches in each block: predictions agree" in capsys.readouterr().out
    assert "at most 32 patches" in refused("export", run, "other.pt2", "--merge", "99")
    assert main(["embed", str(run), "shapes:8", "--merge", "9", "--out", "a.npz", "--json"]) == 0
    hashes = [json.loads(capsys.readouterr().out)["model_hash"]]
    hashes += [model_hash(vitreous.load(run, merge=r)) for r in (9, 8, None)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 3
    assert main(["predict", str(run), "nothing.png", "--merge", "99"]) == 2


def test_what_cannot_be_shown_is_refused(run, pictures):
    with pytest.raises(ConfigError, match="a merged token has none: load the run without merge"):
        vitreous.load(run, merge=9).explain(pictures[0])
