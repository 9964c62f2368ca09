"""Words as classes: zero-shot predictions of models with two towers, by the one existing path."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from worded_runs import COLOURS, clip_run, clip_weights, photographs, siglip_run, siglip_weights

import vitreous
from vitreous.errors import CheckpointError, ConfigError, DataError, VitreousError
from vitreous.import_run import open_run
from vitreous.run_folder import Run
from vitreous.text.prompts import templates
from vitreous.worded_run import with_words

CLASSES = ["a cat", "a dog", "a green house"]
KINDS = {"clip": (clip_run, clip_weights), "siglip": (siglip_run, siglip_weights)}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Text vectors of one test are not another one's."""
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def pictures(count=3):
    random = np.random.default_rng(0)
    return [random.integers(0, 256, (40, 44, 3), np.uint8) for _ in range(count)]


def theirs(kind, prompts, values):
    """transformers' logits, and its tokenizer as its pipeline calls it."""
    from transformers import AutoModel, AutoTokenizer

    folder = KINDS[kind][1]()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    how = {"padding": "max_length", "max_length": 64} if kind == "siglip" else {"padding": True}
    ids = tokenizer(prompts, return_tensors="pt", **how)
    if kind == "siglip":  # published tokenizers give no mask: padding is seen
        ids = {"input_ids": ids["input_ids"]}
    model = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(pixel_values=values, **ids)


def test_probabilities_are_those_of_transformers(kind):
    """The arithmetic of its zero-shot-image-classification: softmax for CLIP, sigmoids for
    SigLIP; every word in the template "a photo of a {}."."""
    predictor = vitreous.load(KINDS[kind][0](), classes=CLASSES)
    found = predictor(pictures())
    values = torch.stack([predictor.prepared(each).values for each in pictures()])
    prompts = [f"a photo of a {name}." for name in CLASSES]
    logits = theirs(kind, prompts, values).logits_per_image
    expected = logits.softmax(dim=1) if kind == "clip" else logits.sigmoid()
    assert expected.std(dim=1).min() > 1e-4  # else any numbers would do
    scores = torch.tensor([[each.scores[name] for name in CLASSES] for each in found])
    assert torch.allclose(scores, expected, atol=1e-5)
    assert predictor.task.name == ("classify" if kind == "clip" else "tag")


def test_templates_and_synonyms_are_averaged(kind):
    """Mean of the normalised vectors of all prompts, normalised (CLIP, section 3.1.4)."""
    sentences = ["a {}", "{} in the dark"]
    options = {"classes": ["cat | kitten", "dog"], "templates": sentences}
    predictor = vitreous.load(KINDS[kind][0](), **options)
    image = predictor.prepared(pictures()[0]).values[None]
    rows = []
    for words in (["cat", "kitten"], ["dog"]):
        prompts = [text.format(word) for word in words for text in sentences]
        found = theirs(kind, prompts, image)
        rows.append(torch.nn.functional.normalize(found.text_embeds.mean(0), dim=0))
    vectors = torch.nn.functional.normalize(found.image_embeds, dim=-1)
    towers = with_words(open_run(KINDS[kind][0]()), "cat").towers
    bias = 0 if towers.logit_bias is None else towers.logit_bias
    expected = towers.logit_scale * vectors @ torch.stack(rows).T + bias
    with torch.no_grad():
        assert torch.allclose(predictor.engine(image), expected, atol=1e-4)


def test_names_of_sets_and_files_of_templates(tmp_path):
    (tmp_path / "t.txt").write_text("a {}\n{} outside\n")
    (tmp_path / "c.txt").write_text("n1: cat | kitten\nn2: dog\n")
    run = with_words(open_run(clip_run()), tmp_path / "c.txt", tmp_path / "t.txt")
    assert run.config.labels.names == ("cat", "dog")
    assert run.config.labels.external == ("n1", "n2")
    assert run.about["templates"] == ["a {}", "{} outside"]
    assert with_words(open_run(clip_run()), ["cat"], "photo").sentences == templates("photo")


def test_text_vectors_are_computed_once(cache, monkeypatch):
    vitreous.load(clip_run(), classes=CLASSES)
    (kept,) = cache.rglob("words/*.safetensors")
    calls = []
    monkeypatch.setattr(
        "vitreous.models.two_towers.TwoTowers.text_vectors", lambda *_: calls.append(1)
    )
    again = vitreous.load(clip_run(), classes=CLASSES)
    assert not calls
    assert [*cache.rglob("words/*.safetensors")] == [kept]
    assert again(pictures()[0]).label in CLASSES


def test_another_image_size_goes_with_words():
    predictor = vitreous.load(clip_run(), classes=CLASSES, image_size=48)
    assert predictor.prepared(pictures()[0]).values.shape[1:] == (48, 48)
    assert predictor(pictures()[0]).label in CLASSES


def test_an_engine_has_its_file_for_these_words(cache):
    """Other templates with the same classes are another file."""
    image = pictures()[0]
    for sentence in ("a {}", "{} on a table"):
        options = {"classes": CLASSES, "templates": sentence}
        one = vitreous.load(clip_run(), engine="onnxruntime", **options)(image)
        other = vitreous.load(clip_run(), **options)(image)
        assert one.scores == pytest.approx(other.scores, abs=1e-5)
    assert len([*cache.rglob("model.onnx")]) == 2


# ---- the tokenizer in the run folder


def test_import_keeps_the_tokenizer():
    run = Run(clip_run())
    config = run.read_config()
    assert config.text.length == 77
    assert len(config.checksums["tokenizer.json"]) == 1
    assert run.read_tokenizer().size == 49408


def test_an_exchanged_tokenizer_is_refused(tmp_path):
    folder = copied(clip_run(), tmp_path / "run")
    (folder / "tokenizer.json").write_bytes((Path(siglip_run()) / "tokenizer.json").read_bytes())
    with pytest.raises(CheckpointError, match="is not the file that this run has written"):
        vitreous.load(folder, classes=CLASSES)


def test_a_tokenizer_of_another_model_is_not_imported(tmp_path):
    folder = copied(siglip_weights(), tmp_path / "hf")
    for path in Path(clip_weights()).glob("token*"):
        (folder / path.name).write_bytes(path.read_bytes())
    (folder / "spiece.model").unlink()
    with pytest.raises(CheckpointError, match="it is the tokenizer of another model"):
        vitreous.import_run(folder, tmp_path / "run")


def test_without_a_tokenizer(tmp_path):
    folder = copied(clip_weights(), tmp_path / "hf")
    for path in folder.glob("token*"):
        path.unlink()
    done = vitreous.import_run(folder, tmp_path / "run")
    assert any("no tokenizer" in note for note in done.notes)
    with pytest.raises(CheckpointError, match="has no tokenizer, and so takes no words"):
        vitreous.load(tmp_path / "run", classes=CLASSES)


def copied(source, target):
    import shutil

    return Path(shutil.copytree(source, target))


# ---- what cannot be


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"classes": []}, DataError, "there are no classes"),
        ({"classes": [f"thing {i}" for i in range(100_000)]}, DataError, "at most 50,000"),
        ({"classes": ["cat " * 90]}, DataError, "more than the 75 tokens"),
        ({"classes": ["cat"], "templates": "a photo"}, ConfigError, "has no {}"),
        ({"classes": ["cat"], "templates": []}, ConfigError, "templates: 0 of them"),
        ({"classes": [" "]}, DataError, "has an empty word"),
        ({"templates": "a {}"}, ConfigError, "give classes, too"),
    ],
)
def test_words_that_cannot_be_classes(options, error, words):
    with pytest.raises(error, match=words):
        vitreous.load(clip_run(), **options)


def test_a_run_without_a_tower_for_texts():
    from runs import vit_file, vit_run

    with pytest.raises(ConfigError, match=r"takes no words: it is a vit, without .* knows red"):
        vitreous.load(vit_run(), classes=CLASSES)
    with pytest.raises(ConfigError, match="was exported with its own, and takes no others"):
        vitreous.load(vit_file(".onnx"), classes=CLASSES)


def test_what_the_classes_are_made_of_is_recorded():
    run = with_words(open_run(clip_run()), ["cat | kitten"])
    about = json.loads(json.dumps(run.config.to_dict()))["origin"]["words"]
    assert about["classes"] == [["cat", "kitten"]]
    assert about["templates"] == ["a photo of a {}."]


# ---- folded: an ordinary classifier


def test_a_folded_run_gives_the_same_answers(kind, tmp_path):
    """It has no text tower, no tokenizer, and the labels, the task and the scores."""
    options = {"classes": CLASSES, "templates": "photo"}
    vitreous.import_run(KINDS[kind][0](), tmp_path / "folded", **options)
    found = vitreous.load(tmp_path / "folded")
    expected = vitreous.load(KINDS[kind][0](), **options)
    for one, other in zip(found(pictures()), expected(pictures()), strict=True):
        assert one.scores == other.scores
    config = Run(tmp_path / "folded").read_config()
    assert config.text is None
    assert config.labels.names == tuple(CLASSES)
    assert config.origin["words"]["classes"] == [[name] for name in CLASSES]
    assert not any(name.startswith("text.") for name in Run(tmp_path / "folded").read_weights())
    assert not (tmp_path / "folded" / "tokenizer.json").exists()


def test_a_folded_run_that_would_differ_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr("vitreous.deploy.fold.TOLERANCE", -1.0)
    with pytest.raises(VitreousError, match="differ from those of both towers"):
        vitreous.import_run(clip_run(), tmp_path / "folded", classes=CLASSES)
    assert not (tmp_path / "folded" / "config.json").exists()


def test_a_run_is_not_folded_into_itself(tmp_path):
    folder = copied(clip_run(), tmp_path / "run")
    with pytest.raises(ConfigError, match="this would replace what is imported"):
        vitreous.import_run(folder, folder, classes=CLASSES)
    with pytest.raises(ConfigError, match="mean is about weights from elsewhere"):
        vitreous.import_run(folder, tmp_path / "other", classes=CLASSES, mean=0.5)


def test_an_exported_file_has_the_words_in_it(tmp_path):
    vitreous.export(clip_run(), tmp_path / "m.onnx", classes=CLASSES, log=lambda _: None)
    expected = vitreous.load(clip_run(), classes=CLASSES)(pictures()[0])
    assert vitreous.load(tmp_path / "m.onnx")(pictures()[0]).scores == pytest.approx(
        expected.scores, abs=1e-5
    )


@pytest.mark.parametrize("same", [True, False])
def test_training_starts_from_a_folded_head(tmp_path, same, capfd):
    """With the same classes in another order the rows go with them; with others the head is new."""
    names = list(COLOURS) if same else ["cat", "dog", "owl"]
    vitreous.import_run(clip_run(), tmp_path / "folded", classes=names)
    run = vitreous.train(
        photographs(tmp_path / "data", 4),
        weights=tmp_path / "folded",
        out=tmp_path / "trained",
        epochs=1,
        batch=2,
        lr=1e-9,
        warmup=0,
        val_fraction=0.5,
    )
    head = Run(run.path).read_config().config["head"]
    image = pictures()[0]
    if same:
        assert head == {"kind": "similarity", "dim": 24}
        assert "head: kept: the weights know the same 3 classes" in capfd.readouterr().err
        before, after = (vitreous.load(path) for path in (tmp_path / "folded", run.path))
        assert after(image).scores == pytest.approx(before(image).scores, abs=1e-3)
    else:
        assert head == "linear"
