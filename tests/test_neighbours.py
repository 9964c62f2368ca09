"""The arithmetic of neighbours, against the plain way and on real digits."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from vitreous import neighbours
from vitreous.embed.embeddings import Embeddings
from vitreous.embed.images import Images, of_paths
from vitreous.embed.plane import on_plane
from vitreous.embed.vector_files import About
from vitreous.errors import ConfigError, DataError
from vitreous.neighbours import Neighbours, nearest, normalised, similar_pairs, vote


def embeddings(vectors, labels=None, splits=None, kind="class"):
    """With vectors of our own; there are no images."""
    names = [f"{i}.png" for i in range(len(vectors))]
    none = [""] * len(names)
    labels = none if labels is None else [str(label) for label in labels]
    stamps = np.arange(2 * len(names)).reshape(-1, 2)
    about = About("none", "0", "head", kind)
    images: Images = of_paths(names)
    return Embeddings(names, vectors.astype("f4"), stamps, labels, splits or none, about, images)


@pytest.fixture(scope="module")
def digits():
    images, labels = load_digits(return_X_y=True)
    return images.astype("f4") - 8, labels


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(neighbours, "BLOCK", 150)


def test_nearest_in_blocks_is_nearest_at_once(small_blocks):
    random = np.random.default_rng(0)
    queries, bank = random.normal(size=(7, 5)), random.normal(size=(40, 5))
    cosine = (queries @ bank.T) / np.linalg.norm(queries, axis=1)[:, None]
    cosine /= np.linalg.norm(bank, axis=1)
    found = nearest(queries.astype("f4"), bank.astype("f4"), 6)
    np.testing.assert_array_equal(found.indices, np.argsort(-cosine, axis=1)[:, :6])
    np.testing.assert_allclose(found.similarities, -np.sort(-cosine, axis=1)[:, :6], atol=1e-6)
    same = nearest(bank.astype("f4"), bank.astype("f4"), 99, same=True)
    assert same.indices.shape == (40, 39)
    assert not (same.indices == np.arange(40)[:, None]).any()


def test_a_vector_of_zeros_is_similar_to_nothing():
    assert not normalised(np.zeros((2, 3), "f4")).any()


def test_pairs_in_blocks_are_all_pairs_and_other_splits_come_first(small_blocks):
    random = np.random.default_rng(1)
    vectors = random.normal(size=(40, 3)).astype("f4")
    groups = random.integers(0, 2, 40)
    pairs, similarities = similar_pairs(vectors, 0.8, groups)
    cosine = normalised(vectors) @ normalised(vectors).T
    expected = {(i, j) for i in range(40) for j in range(i + 1, 40) if cosine[i, j] >= 0.8}
    assert set(map(tuple, pairs.tolist())) == expected
    np.testing.assert_allclose(similarities, [cosine[i, j] for i, j in pairs], atol=1e-6)
    within = [bool(groups[i] == groups[j]) for i, j in pairs]
    assert within == sorted(within)
    assert 0 < sum(within) < len(within)
    few, _ = similar_pairs(vectors, 0.8, groups, most=5)
    np.testing.assert_array_equal(few, pairs[:5])


def test_votes_are_weighted_as_in_dino():
    """The sum of exp(cos / 0.07) over the neighbours of each class, and plain counts."""
    found = Neighbours(np.array([[0, 1, 2]]), np.array([[0.9, 0.8, 0.7]], "f4"))
    votes = vote(found, np.array([1, 0, 0]), 3)
    weights = np.exp(np.array([0.9, 0.8, 0.7]) / 0.07)
    expected = np.array([weights[1] + weights[2], weights[0], 0]) / weights.sum()
    np.testing.assert_allclose(votes.shares[0], expected, rtol=1e-4)
    assert votes.counts.tolist() == [[2, 1, 0]]


def test_knn_accuracy_of_pixels_is_that_of_scikit_learn(digits):
    values, labels = digits
    splits = ["train"] * 1000 + ["val"] * 300 + ["test"] * 497
    found = embeddings(values, labels, splits)
    result = found.knn()
    theirs = KNeighborsClassifier(20, metric="cosine").fit(values[:1000], labels[:1000])
    assert result["knn_accuracy_plain"] == pytest.approx(
        theirs.score(values[1300:], labels[1300:]), abs=0.01
    )  # ties are decided otherwise
    assert result["knn_accuracy"] > 0.93
    assert result["majority_accuracy"] < 0.15
    assert (result["split"], result["samples"], result["train_samples"]) == ("test", 497, 1000)
    assert found.knn(split="val")["samples"] == 300
    with pytest.raises(DataError, match="needs a split 'train'"):
        embeddings(values, labels).knn()
    with pytest.raises(DataError, match="one class each"):
        embeddings(values, labels, splits, kind="labels").knn()


def test_wrong_labels_are_found(digits):
    """Of real digits, 5 % of the labels are changed; these are named first."""
    values, labels = digits
    random = np.random.default_rng(0)
    wrong = random.choice(len(labels), 90, replace=False)
    given = labels.copy()
    given[wrong] = (labels[wrong] + random.integers(1, 10, 90)) % 10
    suspects = embeddings(values, given).suspects()
    named = [each.index for each in suspects]
    hits = np.isin(named, wrong)
    assert hits[:45].all()
    assert hits[:90].mean() > 0.9
    assert hits.sum() == 90
    right = [each.suggested == str(labels[each.index]) for each in suspects[:90]]
    assert np.mean(right) > 0.9
    first = suspects[0]
    assert first.label == str(given[first.index]) != first.suggested
    assert 0 <= first.agreement < first.support <= 1
    doubts = [each.agreement - each.support for each in suspects]
    assert doubts == sorted(doubts)


def test_duplicates_across_splits_come_first():
    vectors = np.eye(6)[[0, 0, 1, 1, 2, 2]] + 0.01 * np.arange(6)[:, None]
    splits = ["val", "val", "test", "train", "train", "val"]
    found = embeddings(vectors, "aabbcd", splits).duplicates(0.9)
    assert [each.splits for each in found] == [("train", "test"), ("train", "val"), ("val", "val")]
    assert found[0].paths == ("3.png", "2.png")
    assert found[1].labels == ("c", "d")
    assert not any(each.identical for each in found)  # there are no files
    for threshold in (0, 1.5):
        with pytest.raises(ConfigError, match="threshold"):
            embeddings(vectors).duplicates(threshold)


@pytest.mark.parametrize("layout", ["pca", "t-sne", "auto", "beside"])
def test_the_plane_keeps_clusters_apart(layout, monkeypatch):
    if layout == "beside":  # more images than t-SNE places
        monkeypatch.setattr("vitreous.embed.plane.MOST_TSNE", 25)
        layout = "auto"
    random = np.random.default_rng(0)
    vectors = np.repeat(np.eye(3), 20, axis=0) + random.normal(scale=0.05, size=(60, 3))
    plane, name = on_plane(vectors.astype("f4"), layout)
    assert name == ("pca" if layout == "pca" else "t-sne")
    assert plane.shape == (60, 2)
    assert np.abs(plane).max() == pytest.approx(1)
    np.testing.assert_array_equal(plane, on_plane(vectors.astype("f4"), layout)[0])
    places = torch.from_numpy(plane)
    near = torch.cdist(places, places).topk(2, largest=False).indices[:, 1] // 20
    assert (near == torch.arange(60) // 20).all()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_few_images_and_equal_ones_have_a_plane(count):
    random = np.random.default_rng(0)
    for vectors in (random.normal(size=(count, 4)), np.ones((count, 4))):
        plane, _ = on_plane(vectors.astype("f4"))
        assert plane.shape == (count, 2)
        assert np.isfinite(plane).all()
