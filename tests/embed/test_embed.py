"""`vitreous embed`: files of vectors, what is computed again, and the command."""

import importlib.util
import json
import os
import shutil

import numpy as np
import pytest
import torch
from compare import perturb
from PIL import Image
from runs import write_run
from train.tiny import class_folder

import vitreous
from vitreous.cli.main import main
from vitreous.data.preprocess import Preprocess
from vitreous.embed.embeddings import Embeddings
from vitreous.embed.vector_files import About, PartFiles, Stored, read, write
from vitreous.errors import ConfigError, DataError
from vitreous.labels import LabelMap, NoLabels
from vitreous.predict import Predictor

NAMES = tuple(f"corner{i}" for i in range(4))


def make_run(folder, family="vit", seed=0, task="classify", **fields):
    fields = {"image_size": 8, "patch": 4, "channels": 1, "classes": 4, **fields}
    model = perturb(vitreous.create(family, **fields))
    model.head.out.weight.data += seed
    labels = LabelMap(NAMES, NAMES) if task == "classify" else NoLabels()
    preprocess = Preprocess(image_size=8, channels=1)
    return write_run(folder, model, labels, preprocess, task, "elsewhere").path


VIT = {"dim": 16, "depth": 1, "heads": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("embed") / "run", **VIT)


@pytest.fixture
def album(tmp_path):
    """Twelve pictures without labels."""
    folder = tmp_path / "album"
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(12):
        image = random.integers(0, 255, (9, 8), np.uint8)
        Image.fromarray(image).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def computed(monkeypatch):
    """The names of the images that the model has seen."""
    names, embed = [], Predictor.vectors

    def seen(self, prepared, pool):
        names.extend(os.path.basename(each.name) for each in prepared)
        return embed(self, prepared, pool)

    monkeypatch.setattr(Predictor, "vectors", seen)
    return names


def test_a_file_has_vectors_paths_labels_and_the_model(run, tmp_path):
    out = tmp_path / "vectors.npz"
    found = vitreous.embed(run, class_folder(), out, progress=False)
    with np.load(out, allow_pickle=False) as file:
        stored = {name: file[name] for name in file.files}
    assert stored["vectors"].dtype == np.float32
    assert stored["vectors"].shape == (200, 16)
    paths = stored["paths"].tolist()
    predictor = vitreous.load(run)
    np.testing.assert_allclose(stored["vectors"], predictor.embed(paths), atol=1e-6)
    assert stored["labels"].tolist() == [path.split("/")[-2] for path in paths]
    assert stored["splits"].tolist() == ["train"] * 160 + ["val"] * 20 + ["test"] * 20
    assert str(stored["model"]) == "vit"
    assert str(stored["model_hash"]) == found.about.model_hash
    assert str(stored["pool"]) == "head"
    assert not list(tmp_path.glob("*.parts"))
    again = Embeddings.load(out)
    np.testing.assert_array_equal(again.vectors, found.vectors)
    assert again.paths == found.paths
    assert again.knn() == found.knn()
    only = vitreous.embed(run, class_folder(), split="test", progress=False)
    assert len(only) == 20
    np.testing.assert_allclose(only.vectors, found.vectors[-20:], atol=1e-6)


@pytest.mark.parametrize("pool", ["class", "mean", "class+mean"])
def test_pooling_of_choice(run, album, pool):
    """Behind the final norm; what the head sees is one of them."""
    predictor = vitreous.load(run)
    path = album / "3.png"
    found = predictor.embed(path, pool=pool)[0]
    values = predictor.prepare(*predictor.read(path))[None]
    with torch.inference_mode():
        (tokens,) = predictor.model.tokens(values, norm=True)
    parts = {"class": tokens[0, 0], "mean": tokens[0, 1:].mean(dim=0)}
    expected = torch.cat([parts[name] for name in pool.split("+")])
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
    assert predictor.vector_length(pool) == len(found)
    if pool == "class":
        np.testing.assert_array_equal(found, predictor.embed(path)[0])


@pytest.mark.parametrize("pool", ["class+mean", "flatten", "max", "both"])
def test_every_vector_is_as_long_as_is_said(tmp_path, album, pool):
    """Also where the head sees several tokens side by side (DINOv2's classifier)."""
    tokens = "class+distillation" if pool == "both" else "class"
    run = make_run(tmp_path / "run", pool=pool, tokens=tokens, **VIT)
    predictor = vitreous.load(run)
    for asked in ("head", "class", "mean", "class+mean"):
        found = predictor.embed(album / "3.png", pool=asked)
        assert found.shape == (1, predictor.vector_length(asked)), asked
    together = vitreous.embed(run, [album / "3.png"], progress=False).vectors
    np.testing.assert_allclose(together, predictor.embed(album / "3.png"), atol=1e-6)


def test_a_mean_behind_which_a_norm_stands_is_what_the_head_sees(tmp_path, album):
    run = make_run(tmp_path / "run", pool="mean", tokens="none", final_norm="pooled", **VIT)
    predictor = vitreous.load(run)
    path = album / "0.png"
    np.testing.assert_array_equal(predictor.embed(path, pool="mean"), predictor.embed(path))
    with pytest.raises(ConfigError, match="no class token: use 'mean'"):
        predictor.embed(path, pool="class+mean")
    with pytest.raises(ConfigError, match="'meen' is not known: did you mean 'mean'"):
        predictor.embed(path, pool="meen")


def test_a_projection_gives_the_vectors(tmp_path, album):
    """CLIP's head is no classifier: its output is the vector."""
    run = make_run(tmp_path / "run", task="features", head="projection", **VIT)
    predictor = vitreous.load(run)
    found = vitreous.embed(run, [album / "0.png"], progress=False)
    assert found.vectors.shape == (1, 4)
    values = predictor.prepare(*predictor.read(album / "0.png"))[None]
    with torch.inference_mode():
        np.testing.assert_allclose(found.vectors, predictor.model(values).numpy(), atol=1e-6)
    assert predictor.embed([]).shape == (0, 4)
    assert predictor.embed(album / "0.png", pool="class").shape == (1, 16)


def test_an_interrupted_run_computes_only_what_is_missing(run, album, tmp_path, monkeypatch):
    """By Ctrl-C, and by a kill, which leaves the parts that were written."""
    out, plain = tmp_path / "v.npz", vitreous.embed(run, album, progress=False)
    monkeypatch.setattr(PartFiles, "SECONDS", -1.0)  # a part for each batch
    embed, count = Predictor.vectors, 0

    def stopped(self, prepared, pool):
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return embed(self, prepared, pool)

    monkeypatch.setattr(Predictor, "vectors", stopped)
    with pytest.raises(KeyboardInterrupt):
        vitreous.embed(run, album, out, batch=4, progress=False)
    assert not out.exists()
    parts = sorted((tmp_path / "v.npz.parts").iterdir())
    assert len(parts) == 2
    parts[1].write_bytes(parts[1].read_bytes()[:100])  # a damaged disk
    seen = []
    monkeypatch.setattr(Predictor, "vectors", lambda s, p, q: seen.extend(p) or embed(s, p, q))
    found = vitreous.embed(run, album, out, batch=4, progress=False)
    assert len(seen) == 8
    assert found.paths == plain.paths
    np.testing.assert_allclose(found.vectors, plain.vectors, atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["album", "v.npz"]


def test_changed_and_new_images_are_computed_anew(run, album, tmp_path, computed):
    out = tmp_path / "v.npz"
    before = vitreous.embed(run, album, out, progress=False)
    computed.clear()
    vitreous.embed(run, album, out, progress=False)
    assert computed == []
    Image.fromarray(np.zeros((9, 8), np.uint8)).save(album / "5.png")
    os.utime(album / "5.png", ns=(1, 1))
    Image.fromarray(np.full((9, 8), 9, np.uint8)).save(album / "new.png")
    (album / "11.png").unlink()
    said = []
    found = vitreous.embed(run, album, out, progress=False, log=said.append)
    assert computed == ["5.png", "new.png"]
    assert any("1 of its images are not among those given now" in line for line in said)
    fresh = vitreous.embed(run, album, progress=False)
    np.testing.assert_allclose(found.vectors, fresh.vectors, atol=1e-6)
    assert np.abs(found.vectors[5] - before.vectors[5]).max() > 1e-3


def test_vectors_of_another_model_or_of_other_images_are_not_mixed(run, album, tmp_path):
    out = tmp_path / "v.npz"
    vitreous.embed(run, album, out, progress=False)
    content = out.read_bytes()
    other = make_run(tmp_path / "other", seed=1, **VIT)
    with pytest.raises(ConfigError, match="were made with another model, vit"):
        vitreous.embed(other, album, out, progress=False)
    with pytest.raises(ConfigError, match="pool = 'head', not 'mean'"):
        vitreous.embed(run, album, out, pool="mean", progress=False)
    with pytest.raises(ConfigError, match="12 other images, which would be lost"):
        vitreous.embed(run, class_folder(), out, progress=False)
    assert out.read_bytes() == content
    out.write_bytes(b"no vectors")
    with pytest.raises(DataError, match="is no file of vectors"):
        vitreous.embed(run, album, out, progress=False)
    with pytest.raises(ConfigError, match=r"ending in \.npz or \.parquet"):
        vitreous.embed(run, album, tmp_path / "v.csv", progress=False)


def test_bad_images_fail_at_the_end_or_are_left_out(run, album, tmp_path, computed, capsys):
    (album / "7.png").write_bytes(b"no image")
    out = tmp_path / "v.npz"
    command = ["embed", str(run), str(album), f"--out={out}"]
    assert main(command) == 2
    said = capsys.readouterr().err
    assert "left out: " in said
    assert "7.png" in said
    assert "1 of 12 images could not be used" in said
    assert "or pass --on-bad skip" in said
    assert not out.exists()
    assert len(computed) == 11
    computed.clear()
    assert main([*command, "--on-bad", "skip", "--json"]) == 0
    assert computed == []  # the others were kept
    assert json.loads(capsys.readouterr().out)["images"] == 11
    assert "7.png" not in " ".join(Embeddings.load(out).paths)


def test_data_from_python_and_what_is_no_file(run, tmp_path, computed):
    out = tmp_path / "v.npz"
    random = np.random.default_rng(0)
    pairs = [(random.integers(0, 255, (8, 8), np.uint8), "ab"[i % 2]) for i in range(6)]
    found = vitreous.embed(run, pairs, out, progress=False)
    assert found.labels == list("ababab")
    assert found.paths[0] == "data/train/0"
    pairs[2] = (np.zeros((8, 8), np.uint8), "a")
    computed.clear()
    vitreous.embed(run, pairs, out, progress=False)
    assert computed == ["2"]


def stored(paths):
    vectors = np.random.default_rng(0).normal(size=(len(paths), 192)).astype(np.float32)
    texts = [["", "a label"][i % 2] for i in range(len(paths))]
    about = About("model", "hash", "mean", "class")
    return Stored(paths, vectors, np.zeros((len(paths), 2), np.int64), texts, texts, about)


@pytest.mark.parametrize("piece", [100, 1 << 24])
@pytest.mark.parametrize("count", [0, 1, 500])
def test_one_long_path_does_not_make_all_of_them_long(tmp_path, count, piece, monkeypatch):
    monkeypatch.setattr("vitreous.embed.vector_files.PIECE", piece)
    paths = [f"folder/ä{i}.jpg" for i in range(count)]
    sizes = []
    for longest in (0, 3_400):
        given = stored([*paths[:-1], paths[-1] + "x" * longest] if paths else [])
        write(tmp_path / "v.npz", given)
        sizes.append((tmp_path / "v.npz").stat().st_size)
        found = read(tmp_path / "v.npz")
        texts = (given.paths, given.labels, given.splits)
        assert (found.paths, found.labels, found.splits) == texts
        with np.load(tmp_path / "v.npz", allow_pickle=False) as file:
            assert file["paths"].tolist() == given.paths
            assert (file["vectors"] == given.vectors).all()
            assert (str(file["model"]), file["stamps"].shape) == ("model", (count, 2))
    assert sizes[1] < 1.1 * sizes[0] + 1_000


def test_files_of_earlier_versions_are_read(tmp_path):
    given = stored([f"{i}.jpg" for i in range(9)])
    texts = {name: np.array(getattr(given, name)) for name in ("paths", "labels", "splits")}
    rest = {"vectors": given.vectors, "stamps": given.stamps, **vars(given.about)}
    np.savez(tmp_path / "v.npz", **texts, **rest)
    found = read(tmp_path / "v.npz")
    assert (found.paths, found.labels, found.about) == (given.paths, given.labels, given.about)
    np.savez(tmp_path / "v.npz", **{**texts, **rest, "paths": np.zeros(9)})
    with pytest.raises(DataError, match="paths is no list of texts"):
        read(tmp_path / "v.npz")


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is there")
def test_parquet_without_pyarrow_is_one_message(run, album, tmp_path, capsys):
    assert main(["embed", str(run), str(album), f"--out={tmp_path / 'v.parquet'}"]) == 2
    assert "pip install pyarrow" in capsys.readouterr().err


def test_parquet_holds_the_same(run, album, tmp_path):
    pytest.importorskip("pyarrow", reason="an extra: pip install pyarrow")
    found = vitreous.embed(run, class_folder(), tmp_path / "v.parquet", progress=False)
    again = Embeddings.load(tmp_path / "v.parquet")
    np.testing.assert_array_equal(again.vectors, found.vectors)
    for name in ("paths", "labels", "splits", "about"):
        assert getattr(again, name) == getattr(found, name)


# ---- the command


@pytest.fixture
def copies(tmp_path):
    """Class folders with an image of train again in test, as another file and class."""
    root = tmp_path / "data"
    shutil.copytree(class_folder(), root)
    shutil.copy(root / "train" / "corner1" / "5.png", root / "test" / "corner2" / "copy.png")
    return root


def embedded(capsys, *words):
    assert main(["embed", *map(str, words), "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_questions_on_the_command_line(run, copies, tmp_path, capsys):
    image = copies / "train" / "corner1" / "5.png"
    words = ["--suspects", copies, "--duplicates", "--knn", "--near", image, "--top", 3]
    result = embedded(capsys, run, *words, "--out", tmp_path / "v.npz", "--pool", "pixels")
    assert (result["images"], result["dim"], result["pool"]) == (201, 1024, "pixels")
    twin = str(copies / "test" / "corner2" / "copy.png")
    assert result["near"][0]["path"] == twin
    assert result["near"][0]["similarity"] == 1
    assert len(result["near"]) == 3
    first = result["duplicates"][0]
    assert first["identical"]
    assert first["paths"] == [str(image), twin]
    assert first["splits"] == ["train", "test"]
    assert first["labels"] == ["corner1", "corner2"]
    assert not any(each["identical"] for each in result["duplicates"][1:])
    suspect = result["suspects"][0]
    assert (suspect["path"], suspect["suggested"]) == (twin, "corner1")
    assert result["knn"]["knn_accuracy"] > 0.9
    assert result["knn"]["split"] == "test"
    # as words, and with the data before the question
    assert main(["embed", str(run), str(copies), *map(str, words[2:]), "--pool=pixels"]) == 0
    said = capsys.readouterr().out
    assert "201 vectors of 1,024 values by vit" in said
    assert "identical" in said
    assert "weighted votes" in said


def test_the_split_is_what_all_questions_are_about(run, copies, tmp_path, capsys):
    words = [run, copies, "--split", "test", "--pool", "pixels", "--duplicates", "--suspects"]
    alone = embedded(capsys, *words)
    page = tmp_path / "map.html"
    result = embedded(
        capsys, *words, "--knn", "--map", page, "--near", alone["suspects"][0]["path"]
    )
    assert result["suspects"] == alone["suspects"]
    assert result["duplicates"] == alone["duplicates"]
    assert {each["split"] for each in result["near"]} == {"test"}
    assert (result["knn"]["split"], result["knn"]["samples"]) == ("test", alone["images"])
    assert alone["images"] < result["images"] < 201  # train votes, and val is not needed
    assert "copy.png" in page.read_text()
    assert "train/corner1" not in page.read_text()


def test_an_image_that_is_not_among_them_is_embedded(run, album, tmp_path, capsys):
    other = tmp_path / "other.png"
    shutil.copy(album / "4.png", other)
    (nearest, *_) = embedded(capsys, run, album, "--near", other)["near"]
    assert nearest["path"] == str(album / "4.png")
    (nearest, *_) = embedded(capsys, run, f"{album}/*.png", "--near", album / "4.png")["near"]
    assert nearest["path"] != str(album / "4.png")
    found = vitreous.embed(run, [album / "4.png", album / "5.png"], progress=False)
    found.save(tmp_path / "v.npz")
    with pytest.raises(ConfigError, match="no model to embed it"):
        Embeddings.load(tmp_path / "v.npz").near(other)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "what should be done with the vectors?"),
        (["--page=p.html"], "what should be done"),
        (["--knn", "--page=p.html"], "--page shows what --near"),
        (["--map=map.png"], "ends in .html"),
        (["--suspects"], "these have no labels"),
        (["--knn", "--k=0"], "k = 0"),
        (["--knn", "--split=train"], "--split test"),
        (["--split=test", "--out=v.npz"], "nothing that says what they show"),
        (["--near=nowhere.png"], "nowhere.png: there is no such file"),
    ],
)
def test_mistakes_are_one_message_before_any_work(run, album, words, message, capsys, monkeypatch):
    monkeypatch.delattr("vitreous.predict.Predictor.embed_each")
    assert main(["embed", str(run), str(album), *words]) == 2
    assert message in capsys.readouterr().err
