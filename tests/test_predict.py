"""One path from image to answer: Python, `evaluate` and `predict` say the same."""

import io
import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from runs import of_digits
from shared import printed, refused

import vitreous
from vitreous.api.evaluation import labelled_source
from vitreous.cli.evaluate import _worth_printing
from vitreous.cli.main import main
from vitreous.cli.printing import print_json
from vitreous.data.formats import open_source
from vitreous.engines.device import find_device
from vitreous.errors import CheckpointError, ConfigError, DataError, InputError
from vitreous.import_run import open_run
from vitreous.labels import IGNORED, LabelMap
from vitreous.predict import Predictor
from vitreous.run_folder import Run, RunConfig
from vitreous.tasks import task_for
from vitreous.train.recipe import Recipe, write_recipe


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder with random weights: what matters here is that all ways agree."""
    return of_digits(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    source = open_source("digits")
    for number, sample in enumerate(source.splits["test"][:5]):
        Image.fromarray(source.image(sample)[0].numpy()).save(folder / f"{number}.png")
    return folder


def test_paths_arrays_images_and_tensors_are_the_same(run, pictures):
    predictor = vitreous.load(run.path)
    path = pictures / "0.png"
    image = Image.open(path)
    array = np.array(image)
    things = [str(path), path, image, array, torch.from_numpy(array)[None]]
    results = predictor(things)
    assert len({result.label for result in results}) == 1
    for result in results:
        assert result.scores == pytest.approx(results[0].scores, rel=1e-6)
    assert predictor(path).image.endswith("0.png")
    assert predictor.labels == tuple("0123456789")


def test_batches_do_not_matter(run, pictures):
    predictor = vitreous.load(run.path)
    paths = sorted(pictures.iterdir())
    alone = [predictor(path) for path in paths]
    for batch in (1, 2, 5):
        for one, other in zip(alone, predictor(paths, batch=batch), strict=True):
            assert one.image == other.image
            assert one.scores == pytest.approx(other.scores, rel=1e-5)


def test_predict_command(run, pictures, capsys, monkeypatch):
    expected = [r.label for r in vitreous.load(run.path)(sorted(pictures.iterdir()))]
    ways = ([str(pictures)], [str(pictures / "*.png")], sorted(map(str, pictures.iterdir())))
    for way in ways:
        assert main(["predict", str(run.path), *way, "--json", "--top", "2"]) == 0
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [line["label"] for line in lines] == expected
        assert all(len(line["top"]) == 2 for line in lines)
    assert "0.png" in printed("predict", run.path, pictures)


def test_frames_that_are_not_read_are_told_once(run, tmp_path, capsys):
    frames = [Image.new("L", (8, 8), level) for level in (0, 99, 200)]
    for name in ("a.gif", "b.tif"):
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
    assert main(["predict", str(run.path), str(tmp_path)]) == 0
    told = f"{tmp_path / 'a.gif'} and 1 other have several pages or frames: only the first is read"
    assert capsys.readouterr().err.splitlines() == [told]


def test_of_many_classes_the_worst_and_the_best_are_printed():
    columns = ["precision", "f1"]
    rows = {f"c{i}": {"precision": 1.0, "f1": i / 100} for i in range(100)}
    rows |= {f"none{i}": dict.fromkeys(columns) for i in range(5)}
    shown, note = _worth_printing(rows, columns)
    assert shown == [f"c{i}" for i in (*range(10), *range(90, 100))]
    assert note == (
        "5 of 105 classes have no images here; the 10 worst and the 10 best of 100 classes by f1; "
        "--json has all classes"
    )
    assert _worth_printing(dict(list(rows.items())[:40]), columns) == (list(rows)[:40], "")


def test_evaluate_command_and_python_agree(run):
    said = json.loads(printed("evaluate", run.path, "--json"))
    result = vitreous.load(run.path).evaluate(open_source("digits"), "test")
    assert said["split"] == "test"
    assert said["accuracy"] == result["accuracy"]
    assert "balanced_accuracy" in printed("evaluate", run.path, "digits", "--split", "val")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "nowhere", "x.png"], "nowhere: there is no such run folder"),
        (["predict", "{pictures}", "x.png"], "is no run folder"),
        (["predict", "{run}", "none.png"], "none.png"),
        (["predict", "{run}", "{pictures}/*.jpg"], "no file matches"),
        (["predict", "{run}"], "no images are given: name files, folders"),
        (["predict", "{run}", "{pictures}", "--top", "0"], "top = 0: expected"),
        (["predict", "{run}", "{pictures}", "--batch", "0"], "batch = 0: expected"),
        (["predict", "{run}", "{pictures}", "--batch", "-1"], "batch = -1: expected"),
        (["evaluate", "{run}", "--batch", "0"], "batch = 0: expected"),
        (["evaluate", "{run}", "--workers", "-1"], "workers = -1: expected a whole number"),
        (["evaluate", "{run}", "--split", "other"], "--split: expected one of train, val, test"),
        (["evaluate", "{run}", "shapes"], "classes that the model does not know"),
    ],
)
def test_bad_input(run, pictures, arguments, words, capsys):
    filled = [a.format(run=run.path, pictures=pictures) for a in arguments]
    assert main(filled) == 2
    out, err = capsys.readouterr()
    assert words in err
    assert out == ""


def test_damaged_run_folders(run, tmp_path):
    folder = Run(tmp_path / "copy")
    folder.path.mkdir()
    config = json.loads((run.path / "config.json").read_text())
    (folder.path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        vitreous.load(folder.path)
    for broken in ({**config, "labels": {}}, {**config, "colour": 1}, {**config, "family": "x"}):
        (folder.path / "config.json").write_text(json.dumps(broken))
        with pytest.raises((ConfigError, DataError), match=r"config\.json|classes"):
            vitreous.load(folder.path)


# ---- images as people have them


def test_a_folder_is_seen_as_training_sees_it(run, pictures, tmp_path, capsys):
    folder = tmp_path / "album"
    for name in ("10.png", "2.png", "deep/1.PNG", ".hidden.png", "__MACOSX/2.png", ".x/3.png"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(pictures / "0.png", folder / name)
    (folder / "notes.txt").write_text("no image")
    (folder / "loop").symlink_to(folder)
    assert main(["predict", str(run.path), str(folder), "--json"]) == 0
    seen = [json.loads(line)["image"] for line in capsys.readouterr().out.splitlines()]
    assert seen == [str(folder / name) for name in ("2.png", "10.png", "deep/1.PNG")]
    assert main(["predict", str(run.path), f"{folder}/**", "--json"]) == 2, "notes.txt matches too"
    assert main(["predict", str(run.path), f"{folder}/[0-9]*", "--json"]) == 0
    seen = [json.loads(line)["image"] for line in capsys.readouterr().out.splitlines()[-2:]]
    assert seen == [str(folder / name) for name in ("2.png", "10.png")]


@pytest.mark.parametrize("options", [["--json"], ["--batch", "1"]])
def test_a_bad_file_does_not_lose_the_good_ones(run, pictures, tmp_path, capsys, options):
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"<html>")
    files = [str(pictures / "0.png"), str(bad), str(pictures / "1.png"), str(tmp_path / "no.png")]
    assert main(["predict", str(run.path), *files, *options]) == 2
    out, err = capsys.readouterr()
    assert [name for name in files if name in out] == files[::2]
    assert err.splitlines() == [
        f"vitreous: {bad}: is an HTML page, not an image: was it a download that failed?",
        f"vitreous: {tmp_path / 'no.png'}: there is no such file",
        "vitreous: 2 of 4 images could not be used: see above",
    ]


def test_bad_images_in_python(run, pictures):
    predictor = vitreous.load(run.path)
    paths = [pictures / "0.png", "nowhere.png", pictures / "1.png"]
    with pytest.raises(DataError, match=r"nowhere\.png"):
        list(predictor.stream(paths))
    told = []
    results = list(predictor.stream(paths, batch=1, bad=told.append))
    assert [result.image for result in results] == [str(paths[0]), str(paths[2])]
    assert [str(error) for error in told] == ["nowhere.png: there is no such file"]


def test_an_empty_list_on_standard_input(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert "there are no names on standard input" in refused("predict", run.path, "-")


@pytest.mark.parametrize("batch", [0, -1, 1.5, True])
def test_batches_in_python(run, pictures, batch):
    predictor = vitreous.load(run.path)
    for images in ([pictures / "0.png"], pictures / "0.png"):
        with pytest.raises(ConfigError, match=rf"batch = {batch}: expected a whole number"):
            predictor(images, batch=batch)
    with pytest.raises(ConfigError, match=rf"batch = {batch}"):
        predictor.evaluate(open_source("digits"), "test", batch=batch)
    with pytest.raises(ConfigError, match="readers = 0"):
        predictor.stream([], readers=0)


def test_devices(run, monkeypatch):
    assert vitreous.load(run.path, device="cpu").device == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"device = 'gpu' is not here; use cpu"):
        vitreous.load(run.path, device="gpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert find_device() == find_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match=r"'cuda' is not here: there is no GPU .* use cpu"):
        find_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device() == torch.device("cuda")
    assert find_device(torch.device("cuda", 1)) == torch.device("cuda:1")
    with pytest.raises(ConfigError, match=r"'cuda:2' is not here; use cpu or cuda or cuda:0 or"):
        find_device("cuda:2")


def test_no_run(run):
    with pytest.raises(ConfigError, match="run = None: expected the path of a run folder"):
        vitreous.load(None)


def colour_predictor(run):
    """The same for images of three channels."""
    predictor = vitreous.load(run.path)
    model = vitreous.create("vit", image_size=8, patch=4, dim=16, depth=1, heads=2, classes=10)
    return Predictor(model, replace(predictor.preprocess, channels=3), predictor.task)


def test_floating_point_of_0_to_255_is_refused(run, pictures, tmp_path):
    predictor = vitreous.load(run.path)
    array = np.array(Image.open(pictures / "0.png"))
    for thing in (array.astype(np.float32), torch.from_numpy(array).float()):
        with pytest.raises(InputError, match=r"values up to 239.* give uint8, or divide by 255"):
            predictor(thing)
        assert predictor(thing / 255).scores == pytest.approx(predictor(array).scores, rel=1e-5)
    Image.fromarray(array.astype(np.float32)).save(tmp_path / "a.tif")
    predictor(tmp_path / "a.tif")  # a file is read as training reads it
    predictor.preprocess = replace(predictor.preprocess, mean=(80.0,), std=(90.0,))
    predictor(array.astype(np.float32))


def test_a_batch_is_many_images(run, tmp_path):
    """A tensor (b, c, h, w), or an array (b, h, w, c)."""
    predictor = vitreous.load(run.path)
    images = [torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8) for _ in range(3)]
    singles = [predictor(image) for image in images]
    batch = torch.stack(images)
    for given in (batch, batch.numpy(), batch.permute(0, 2, 3, 1).numpy()):
        results = predictor(given)
        assert [each.label for each in results] == [each.label for each in singles]
        assert [each.score for each in results] == pytest.approx([e.score for e in singles])
        assert predictor.embed(given).shape == predictor.embed(images).shape
    assert len(predictor(batch[:1])) == 1
    assert predictor(batch[:0]) == []
    vitreous.explain(run.path, batch[:2], tmp_path / "x")
    assert len(list(tmp_path.glob("x/0*"))) == 2


def test_transparent_arrays_are_put_on_white(run, tmp_path):
    predictor = colour_predictor(run)
    array = np.random.default_rng(0).integers(0, 256, (8, 8, 4), dtype=np.uint8)
    Image.fromarray(array).save(tmp_path / "a.png")
    expected = predictor(tmp_path / "a.png").scores
    for thing in (array, torch.from_numpy(array).permute(2, 0, 1)):
        assert predictor(thing).scores == pytest.approx(expected, rel=1e-6)
    with pytest.raises(DataError, match=r"^array: has 5 channels, expected 3"):
        predictor(np.zeros((8, 8, 5), np.uint8))
    tifffile.imwrite(tmp_path / "a.tif", np.zeros((5, 8, 8), np.uint8))
    with pytest.raises(DataError, match=rf"^{tmp_path}/a\.tif: has 5 channels"):
        predictor(tmp_path / "a.tif")


# ---- evaluation


@pytest.fixture
def album(tmp_path):
    """Ten images of each of two digits, in class folders without splits."""
    source = open_source("digits")
    for name in "37":
        (tmp_path / "album" / name).mkdir(parents=True)
        samples = [s for s in source.splits["train"] if source.labels.names[s.target] == name]
        for number, sample in enumerate(samples[:10]):
            image = Image.fromarray(source.image(sample)[0].numpy())
            image.save(tmp_path / "album" / name / f"{number}.png")
    return tmp_path / "album"


def evaluated(*arguments):
    said = json.loads(printed("evaluate", *map(str, arguments), "--json"))
    return said["split"], said["samples"]


def test_other_data_is_evaluated_completely(run, album):
    assert evaluated(run.path, album) == ("all", 20)
    for name in "37":
        (album / "train").mkdir(exist_ok=True)
        shutil.move(album / name, album / "train" / name)
    shutil.copytree(album / "train" / "3", album / "val" / "3")
    assert evaluated(run.path, album) == ("val", 10)
    shutil.copytree(album / "train", album / "test")
    assert evaluated(run.path, album) == ("test", 20)
    assert evaluated(run.path, album, "--split", "val") == ("val", 10)


def test_the_run_s_own_data_is_divided_as_for_training(run, album, tmp_path, monkeypatch):
    own = Run(tmp_path / "own")
    shutil.copytree(run.path, own.path)
    own.write_config(replace(run.read_config(), data=str(album)))
    own.write_text("recipe.toml", write_recipe(Recipe(data=str(album), seed=3)))
    monkeypatch.chdir(tmp_path)
    for data in ([], [album], ["album/"], ["folder:./album"]):
        assert evaluated(own.path, *data) == ("val", 2)
    assert evaluated(run.path, album) == ("all", 20)
    (own.path / "recipe.toml").unlink()
    assert "says how" in refused("evaluate", own.path)


def test_data_that_was_moved(run, album, tmp_path, capsys):
    """The error says that DATA can be given, and its split is the training's."""
    own = Run(tmp_path / "own")
    shutil.copytree(run.path, own.path)
    config = run.read_config()
    own.write_config(replace(config, data=str(album), labels=open_source(album).labels))
    own.write_text("recipe.toml", write_recipe(Recipe(data=str(album), seed=3)))
    shutil.move(album, tmp_path / "moved")
    assert main(["evaluate", str(own.path)]) == 2
    assert f"if it was moved, give its new path: vitreous evaluate {own.path} DATA" in (
        capsys.readouterr().err
    )
    lines = []
    source, _ = labelled_source(open_run(own.path), tmp_path / "moved", lines.append)
    held_out = open_source(tmp_path / "moved", seed=3).splits["val"]
    assert list(source.splits["val"]) == list(held_out)
    assert any("is taken for it, split as in training" in line for line in lines)


@pytest.mark.parametrize("command", ["evaluate", "predict", "explain", "embed", "export"])
def test_a_command_opens_its_run_once(command, run, pictures, tmp_path, monkeypatch):
    read, parsed = RunConfig.read, []

    def noted(text, where):
        parsed.append(where)
        return read(text, where)

    monkeypatch.setattr(RunConfig, "read", noted)
    photo = str(min(pictures.iterdir()))
    words = {
        "evaluate": [],
        "predict": [photo],
        "explain": [photo, f"--out={tmp_path}"],
        "embed": [photo, f"--out={tmp_path / 'a.npz'}"],
        "export": [str(tmp_path / "a.pt2")],
    }
    assert main([command, str(run.path), *words[command]]) == 0
    own = [where for where in parsed if where.startswith(str(run.path))]
    assert own == [str(run.path / "config.json")]


@pytest.mark.parametrize("kind", ["class", "labels", "mask", "boxes"])
def test_unknown_classes_that_nothing_has_are_left_out(kind):
    """Only classes with images, objects or pixels have to be known."""
    task = task_for(kind)
    source = open_source("shapes:30", truth=kind)
    names = source.labels.names
    *known, last = sorted(names)
    source.labels = LabelMap(names, source.labels.external)
    lines = []
    predictor = SimpleNamespace(task=task(LabelMap.of_names(known)), labels=tuple(known))
    assert Predictor._unused_classes(predictor, source, "test", lines.append) == set()
    with pytest.raises(DataError, match=f"does not know: {last}"):
        predictor.task.labels.indices_of(source.labels)
    number = names.index(last)
    source.splits["test"] = [
        sample
        for sample in source.splits["test"]
        if number not in set(task.truth.classes(source.truth(sample)))
    ]
    assert source.splits["test"]
    unused = Predictor._unused_classes(predictor, source, "test", lines.append)
    assert unused == {number}
    assert lines == [f"classes that the model does not know, and no image has: {last}"]
    here = predictor.task.labels.indices_of(source.labels, unused=unused)
    assert here[number] == IGNORED
    assert [known[i] for i in here if i != IGNORED] == [name for name in names if name != last]
    targets = [source.truth(sample) for sample in source.splits["test"][:2]]
    if kind in ("class", "labels", "mask"):
        targets = torch.stack([torch.as_tensor(target) for target in targets])
    renamed = predictor.task.renamed(targets, here)
    for ours, theirs in zip(renamed, targets, strict=True):
        if kind == "labels":  # every one of ours is known
            ours = torch.stack([*ours])
        expected = {names[i] for i in task.truth.classes(theirs)}
        assert {known[i] for i in task.truth.classes(ours)} == expected


def test_a_model_is_evaluated_on_data_with_more_classes(run, album, capsys):
    """The class folder is there, and no image of it is in the split."""
    (album / "train").mkdir()
    for name in "37":
        shutil.move(album / name, album / "train" / name)
    shutil.copytree(album / "train", album / "test")
    shutil.copytree(album / "train" / "7", album / "train" / "zebra")
    assert evaluated(run.path, album) == ("test", 20)
    assert main(["evaluate", str(run.path), str(album), "--split", "train"]) == 2
    assert "classes that the model does not know: zebra" in capsys.readouterr().err


def test_the_confusion_matrix_is_printed(run, capsys):
    result = vitreous.load(run.path).evaluate(open_source("digits"), "test")
    assert main(["evaluate", str(run.path)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[-11:]]
    assert rows[0] == ["id", "class", *"0123456789"]
    assert [list(map(int, row[2:])) for row in rows[1:]] == result["confusion"]


def test_the_same_weights_are_the_same_bytes(run, tmp_path):
    model = run.read_config().create()
    written = set()
    for number in range(8):
        other = Run(tmp_path / str(number))
        other.path.mkdir()
        other.write_weights(model, model.state_dict())
        written.add((other.path / "model.safetensors").read_bytes())
    assert len(written) == 1
    assert other.read_weights().keys() == model.state_dict().keys()


# ---- vectors, and what a predictor says of itself


def test_embed_is_what_the_head_sees(run, pictures):
    predictor = vitreous.load(run.path)
    paths = sorted(pictures.iterdir())[:5]
    vectors = predictor.embed(paths, batch=2)
    assert vectors.dtype == np.float32
    assert vectors.shape == (5, predictor.model.width)
    values = torch.stack([predictor.prepare(*predictor.read(path)) for path in paths])
    with torch.inference_mode():
        logits = predictor.model.head(torch.from_numpy(vectors))
        assert torch.allclose(logits, predictor.model(values), atol=1e-5)
    np.testing.assert_allclose(predictor.embed(paths[0]), vectors[:1], atol=1e-6)
    np.testing.assert_allclose(
        predictor.embed(np.array(Image.open(paths[0]))), vectors[:1], atol=1e-6
    )
    assert predictor.embed([]).shape == (0, predictor.model.width)
    with pytest.raises(DataError, match="nowhere"):
        predictor.embed(["nowhere.png"])


def test_embed_of_models_around_others(tmp_path):
    """Of the encoder or backbone inside, also where images differ in size."""
    from tasks.detect_runs import make_run as make_detector
    from tasks.segment_runs import make_run as make_segmenter

    images = [np.full(size, 90, np.uint8) for size in ((40, 70, 3), (64, 64, 3))]
    runs = make_detector(tmp_path / "a"), make_segmenter(tmp_path / "b", "linear, no token")
    for each in runs:
        predictor = vitreous.load(each.path)
        vectors = predictor.embed(images)
        assert vectors.shape == (2, predictor.model.core.width)
        assert np.isfinite(vectors).all()
        np.testing.assert_allclose(vectors[1:], predictor.embed(images[1]), atol=1e-5)


def test_a_predictor_says_what_it_is(run):
    said = repr(vitreous.load(run.path))
    assert re.fullmatch(r"Predictor\(classify, \S+ for 8x8 images, 10 classes, on cpu\)", said)
    public = [getattr(Predictor, name) for name in dir(Predictor) if not name.startswith("_")]
    assert all(each.__doc__ for each in [Predictor, Predictor.__call__, *public])


def copied(run, tmp_path, change):
    """The run with other weights."""
    folder = Run(tmp_path / "changed")
    shutil.copytree(run.path, folder.path)
    state = folder.read_weights()
    change(state)
    folder.write_weights(folder.read_config().create(), state)
    return folder.path


def test_weights_that_are_not_finite_do_not_load(run, tmp_path, pictures, capsys):
    """They gave nan with exit code 0, and an IndexError in evaluate."""

    def change(state):
        state["norm.weight"][3:5] = torch.tensor([torch.nan, torch.inf])

    bad = copied(run, tmp_path, change)
    with pytest.raises(CheckpointError, match=r"norm.weight .*not finite \(2 of 16\)"):
        vitreous.load(bad)
    for command in (["predict", str(bad), str(pictures)], ["evaluate", str(bad)]):
        assert main([*command, "--json"]) == 2
        told = capsys.readouterr()
        assert "norm.weight" in told.err
        assert not told.out
    model = vitreous.load(run.path).model
    state = model.state_dict()
    state["norm.weight"] = torch.full((16,), 1e300, dtype=torch.float64)
    with pytest.raises(CheckpointError, match="16 of 16"):
        vitreous.import_weights(model, state, "vitreous")


def test_outputs_that_are_not_finite_are_an_error_with_the_image(run, tmp_path, pictures, capsys):
    """Finite weights can overflow too."""

    def change(state):
        state["norm.weight"].fill_(1e38)
        state["head.out.weight"].fill_(1e38)

    bad = copied(run, tmp_path, change)
    for command, name in (
        (["predict", str(bad), str(pictures)], "0.png"),
        (["evaluate", str(bad)], "digits"),
        (["explain", str(bad), str(pictures / "0.png"), f"--out={tmp_path / 'out'}"], "0.png"),
    ):
        assert main([*command, "--json"]) == 2
        told = capsys.readouterr()
        assert "the model's output is not finite" in told.err
        assert name in told.err
        assert not told.out


def test_json_without_nan(capsys):
    """What is not defined is null."""
    print_json({"a": [1.5, float("nan"), (float("inf"), "nan")], "b": None})
    assert capsys.readouterr().out == '{"a": [1.5, null, [null, "nan"]], "b": null}\n'


def test_extreme_values_of_an_image(run, tmp_path):
    """14.5: -1e30, by which some programs mark missing pixels, gave nan."""
    pixels = np.zeros((8, 8), np.float32)
    pixels[2, 3] = -1e30
    tifffile.imwrite(tmp_path / "a.tif", pixels)
    predictor = vitreous.load(run.path)
    for image, name in ((pixels, "array"), (torch.from_numpy(pixels), "tensor"), ("a.tif",) * 2):
        given = tmp_path / image if isinstance(image, str) else image
        with pytest.raises(DataError, match=rf"{name}: has values of -1e\+30"):
            predictor(given)


BAD_CONFIGS = {
    "fewer labels": (
        ("labels", "names", [str(i) for i in range(9)]),
        "config.json cannot be used: 9",
    ),
    "nine labels": (("labels", {"names": list("abcdefghi"), "external": [*range(9)]}), "9 labels"),
    "more labels": (("labels", {"names": [*"abcdefghijk"], "external": [*range(11)]}), "11 labels"),
    "unknown task": (("task", "tagg"), "did you mean 'tag'"),
    "another task": (("task", "segment"), "a vit is no model to segment"),
    "no task": (("task", None), "expected str"),
    "no labels": (("labels", None), "cannot be used"),
    "no config": (("config", None), "expected dict"),
    "no preprocessing": (("preprocess", None), "expected names and values"),
    "nesting": (("config", "depth", [[[[[[[[[]]]]]]]]]), "expected int"),
    "tiny crop": (("preprocess", "crop", 1e-9), "crop"),
    "very deep": (("config", "depth", 1_000_000), "below 1000"),
    "very wide": (("config", "dim", 2**30), "at most 16,777,216"),
    "wide": (("config", "dim", 2**24), "has only"),
    "large": (("config", "image_size", 2**16), "has only"),
}


@pytest.mark.parametrize("name", BAD_CONFIGS)
def test_a_config_that_cannot_be_is_one_message(run, tmp_path, pictures, capsys, name):
    """These were tracebacks, or took all memory."""
    (*place, last, value), words = BAD_CONFIGS[name]
    shutil.copytree(run.path, tmp_path / "bad")
    file = tmp_path / "bad" / "config.json"
    values = json.loads(file.read_text())
    owner = values
    for key in place:
        owner = owner[key]
    owner[last] = value
    file.write_text(json.dumps(values))
    assert main(["predict", str(tmp_path / "bad"), str(pictures)]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert len(message) < 1000
