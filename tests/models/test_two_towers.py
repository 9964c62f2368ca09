"""Text towers, and models that have one beside their image tower: what holds for any weights."""

import copy

import pytest
import torch
import torch.nn.functional as F
from compare import perturb, picture, relative_error

import vitreous
from vitreous.errors import ConfigError, InputError
from vitreous.layers.tap import tap
from vitreous.models import configure, family_of, has_words

END = 98
IMAGE = {"dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}
TEXT = {"dim": 24, "depth": 2, "heads": 2, "mlp_dim": 48, "vocabulary": 99, "length": 10}
SIZES = {"image_fields": IMAGE, "text_fields": TEXT}
MODELS = {
    "clip": ("clip-b/32", {"image_size": 64, "dim": 16, **SIZES}),
    "siglip": ("siglip-b/16", {"image_size": 32, "dim": 32, **SIZES}),
    "pe": ("pe-b/16", {"image_size": 32, "dim": 16, **SIZES}),
    "any image tower": (
        "two-towers",
        {"image": "dinov2-s/14", "text": "clip-b-text", "image_size": 28, "dim": 16, **SIZES},
    ),
}
each = pytest.mark.parametrize("name", MODELS)


def made(name):
    model, fields = MODELS[name]
    torch.manual_seed(0)
    model = perturb(vitreous.create(model, **fields))
    model.similarity.log_scale.data.fill_(1.0)
    return model, picture(3, 3, *model.own_size())


def texts(*ends, length=10):
    """One text for each place of its end token, padded with zeros."""
    ids = torch.randint(1, END, (len(ends), length), generator=torch.Generator().manual_seed(1))
    for row, end in zip(ids, ends, strict=True):
        row[end], row[end + 1 :] = END, 0
    return ids


# Vectors


@torch.no_grad()
@each
def test_vectors_have_length_one_and_logits_are_scaled_cosines(name):
    model, images = made(name)
    ids = texts(4, 9)
    found = model(images, ids)
    for vectors in (found.images, found.texts, model.image_vectors(images)):
        torch.testing.assert_close(vectors.norm(dim=1), torch.ones(len(vectors)))
    assert torch.equal(found.images, model.image_vectors(images))
    assert torch.equal(found.texts, model.text_vectors(ids))
    cosines = F.cosine_similarity(found.images[:, None], found.texts[None], dim=2)
    bias = 0 if model.logit_bias is None else model.logit_bias
    torch.testing.assert_close(found.logits, model.logit_scale * cosines + bias)
    assert (model.logit_bias is not None) == (name == "siglip")
    assert relative_error(model.logit_scale, torch.tensor(1.0).exp()) < 1e-6


@torch.no_grad()
@each
def test_images_alone_give_what_the_image_tower_gives(name):
    model, images = made(name)
    vectors = model.core.vectors(images)
    assert torch.equal(model(images), vectors)
    assert torch.equal(model.outputs(images)["vectors"], vectors)
    assert torch.equal(model.image_vectors(images), F.normalize(vectors, dim=1))
    for ours, core in zip(model.maps(images, norm=False), model.core.maps(images), strict=True):
        assert torch.equal(ours, core)
    assert model.levels(model.own_size()) == model.core.levels(model.own_size())
    inside = [each.name for each in model.core.attentions()]
    assert [each.name for each in model.attentions()] == [f"image.{name}" for name in inside]
    seen = {}
    with tap(dict(model.named_modules()), seen.__setitem__):
        model(images)
    assert seen[f"{model.attentions()[0].name}.weights"].shape[0] == len(images)


@each
def test_every_parameter_learns(name):
    model, images = made(name)
    found = model.train()(images, texts(3, 6, 9))
    labels = torch.arange(3)
    (F.cross_entropy(found.logits, labels) + found.logits.square().mean()).backward()
    left = {key for key, each in model.named_parameters() if each.grad is None}
    assert not {key for key in left if not key.startswith("image.head")}
    tokens = model.text.embedding.tokens.weight.grad
    assert tokens[END].any()


@torch.no_grad()
@each
def test_texts_do_not_depend_on_the_batch_and_export(name):
    model, images = made(name)
    ids = texts(2, 5, 9)
    together = model.text_vectors(ids)
    singles = torch.cat([model.text_vectors(row[None]) for row in ids])
    assert relative_error(singles, together) < 1e-6
    shapes = ({0: torch.export.Dim("n")},)
    program = torch.export.export(model.text, (ids,), dynamic_shapes=shapes).module()
    more = torch.cat((ids, ids[:1]))
    assert relative_error(program(more), model.text(more)) < 1e-6
    twin = copy.deepcopy(model)
    assert torch.equal(twin(images, ids).logits, model(images, ids).logits)


# What a text tower reads


@torch.no_grad()
@pytest.mark.parametrize("name", ["clip", "pe"])
def test_causal_towers_do_not_see_what_follows(name):
    """A token's output depends on it and on those before it; so padding changes nothing."""
    tower = made(name)[0].text
    ids = texts(5, 9)
    x = tower.encode(*tower.embed(ids))
    other = ids.clone()
    other[:, 4] = 7
    changed = (tower.encode(*tower.embed(other)) - x).abs().amax(dim=(0, 2))
    assert not changed[:4].any()
    assert changed[4:].all()
    padded = ids[:1].clone()
    padded[0, 6:] = torch.tensor([1, 2, 3, 4])
    assert torch.equal(tower(padded), tower(ids[:1]))
    short = tower(ids[:1, :6])
    assert relative_error(short, tower(ids[:1])) < 1e-6


@torch.no_grad()
def test_siglip_sees_all_places_and_needs_them():
    tower = made("siglip")[0].text
    ids = texts(5)
    x = tower.encode(*tower.embed(ids))
    for place in range(10):
        other = ids.clone()
        other[0, place] = 50 + place
        assert (tower.encode(*tower.embed(other)) - x).abs().amax(dim=2).all()
    with pytest.raises(
        InputError, match="texts of 6 tokens were given; this model takes exactly 10"
    ):
        tower(ids[:, :6])


@torch.no_grad()
def test_the_end_token_is_read():
    """The first of them, wherever it is: also in the last place, where a text was cut off."""
    tower = made("clip")[0].text
    ids = texts(3, 9)
    x = tower.norm(tower.encode(*tower.embed(ids)))
    assert torch.equal(tower.pool(tower.encode(*tower.embed(ids)), ids), x[[0, 1], [3, 9]])
    twice = ids.clone()
    twice[0, 6:] = END  # padding with it
    assert torch.equal(tower(twice), tower(ids))


@torch.no_grad()
def test_which_token_is_read_is_a_part_of_the_config():
    """largest: OpenAI's code; end: any id, of a tokenizer with others behind it; last: any."""
    ids = texts(3, 9)
    ids[:, 2] = 40

    def read(**pool):
        tower = vitreous.create("clip-b-text", **TEXT, **pool).eval()
        x = torch.arange(10.0)[None, :, None].expand(2, -1, 24)
        return tower.pooling(x, ids)[:, 0].tolist()

    assert read() == [3, 9]
    assert read(pool="largest") == [3, 9]
    assert read(pool={"kind": "end", "token": 40}) == [2, 2]
    assert read(pool="last") == [9, 9]
    bigger = {**TEXT, "vocabulary": 120}
    assert configure("clip-b-text", **bigger, **{"pool.token": 98})[1].end == 98
    assert configure("clip-b-text", **bigger)[1].end == 119


def test_wrong_texts_are_refused():
    model, images = made("clip")
    ids = texts(3)
    for given, said in (
        (ids.float(), "takes integers"),
        (ids[0], "takes integers"),
        (torch.zeros(2, 11, dtype=torch.long), "11 tokens were given; this model takes up to 10"),
        (torch.zeros(2, 0, dtype=torch.long), "up to 10"),
        (ids + 2, "from 2 to 100 were given; the vocabulary of this model has 99"),
        (ids - 1, "from -1 to"),
        (ids.clamp(max=97), "text 0 has no end token (98)"),
    ):
        with pytest.raises(InputError) as caught:
            model.text_vectors(given)
        assert said in str(caught.value)
    assert model.text_vectors(ids[:0]).shape == (0, 16)
    with pytest.raises(InputError, match="channels"):
        model(images[:, :1], ids)


# Names and parts


@pytest.mark.parametrize("name", ["clip-b/32", "siglip-so400m/14", "pe-G/14", "ViT-B-16-SigLIP2"])
def test_parts(name):
    """Each is what the whole has, by itself; the image tower has a head for classes."""
    with torch.device("meta"):
        whole = vitreous.create(name)
        text = vitreous.create(name, part="text")
        image = vitreous.create(name, part="image", classes=10)
        both = vitreous.create(name, part="both")
    assert has_words(name)
    assert type(whole) is type(both)
    assert text.config == whole.text.config
    assert family_of(text) == family_of(whole.text)
    assert family_of(image) == family_of(whole.core)
    shapes = {key: value.shape for key, value in whole.core.state_dict().items()}
    own = {key: value.shape for key, value in image.state_dict().items()}
    assert {k: v for k, v in own.items() if "head" not in k} == {
        k: v for k, v in shapes.items() if "head" not in k
    }
    assert own["head.out.weight"] == (10, image.width)
    assert configure(image.name)[0] == family_of(image)
    assert configure(text.name)[0] == family_of(text)


def test_an_image_tower_may_stand_wherever_a_model_of_images_does():
    with torch.device("meta"):
        whole = vitreous.create("segmenter-s/16", encoder="clip-b/16", image_size=64)
        also = vitreous.create("segmenter-s/16", encoder="clip-b/16-image", image_size=64)
    assert whole.core.config == also.core.config
    assert whole.core.name == "clip-b/16-image"


def test_what_is_no_such_model_is_refused():
    for name, options, said in (
        ("vit-b/16", {"part": "image"}, "vit-b/16 is one model, with no parts"),
        ("clip-b/32", {"part": "txt"}, "part = 'txt' is not known: did you mean 'text'"),
        ("clip-b/32", {"classes": 10}, "unknown field 'classes'"),
        ("clip-b/32", {"text.classes": 10}, "give dim"),
        ("clip-b/32", {"image.image_size": 10}, "give image_size itself"),
        ("clip-b/32", {"text": "vit-b/16"}, "is no text tower"),
        ("clip-b/32", {"image": "detr-r50"}, "no model that classifies"),
        ("siglip-b/16", {"dim": 99}, "768"),
        ("clip-b-text", {"heads": 7}, "does not divide into 7 heads"),
        ("clip-b-text", {"pool.token": 49408}, "the vocabulary has 49408 tokens"),
    ):
        with pytest.raises(ConfigError) as caught, torch.device("meta"):
            vitreous.create(name, **options)
        assert said in str(caught.value), (name, options)


def test_fields_of_both_towers_at_once():
    config = configure("clip-b/32", activation="gelu", norm_eps=1e-6, **{"text.norm_eps": 1e-4})[1]
    assert config.image_fields == {"activation": "gelu", "norm_eps": 1e-6}
    assert config.text_fields == {"activation": "gelu", "norm_eps": 1e-4}
