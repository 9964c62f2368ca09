"""Instance segmentation: masks in every format, how they move, COCO's numbers, and the way from
data to results. That the loss is the published one is in parity/test_rf_detr.py."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image
from pycocotools import mask as cocomask
from tasks.pycocotools_numbers import by_pycocotools
from train.tiny import box_folder, teacher, train, trained
from train.undrawn import undrawn
from video_files import moving, write_video

import vitreous
from vitreous.data.formats import open_source
from vitreous.data.formats.python_data import from_python
from vitreous.data.instance_masks import InstanceMasks
from vitreous.errors import ConfigError, DataError
from vitreous.labels import LabelMap
from vitreous.models.rf_detr import RFDETROutput
from vitreous.results import InstanceSegmentation
from vitreous.tasks import show_of
from vitreous.tasks.data_check import check
from vitreous.tasks.instance.task import InstanceMetrics, SegmentInstances, ellipses
from vitreous.tasks.instance.truth import InstancesTruth
from vitreous.tasks.objects.boxes import normalised, to_pixels
from vitreous.tasks.objects.metrics import NUMBERS, BoxPrediction

pytestmark = pytest.mark.filterwarnings("ignore:__array__")  # pycocotools' decode
LABELS = LabelMap.of_names(["cat", "dog", "owl"])
MOVES = InstancesTruth()


def around(masks):
    """(n, h, w) -> (n, 4), each of which has some pixel."""
    return torchvision.ops.masks_to_boxes(masks) + torch.tensor([0, 0, 1, 1])


def blobs(count, size, seed):
    """(n, h, w) of bool, none empty, many overlapping."""
    random = torch.rand(count, 1, 5, 5, generator=torch.Generator().manual_seed(seed))
    return F.interpolate(random, size, mode="bilinear")[:, 0] > 0.6


def objects(count, size=(23, 31), seed=0):
    """As a source gives them."""
    dense = blobs(count, size, seed)
    dense = dense[dense.flatten(1).any(dim=1)]
    masks = InstanceMasks.of(dense)
    generator = torch.Generator().manual_seed(seed)
    return {
        "boxes": masks.boxes(),
        "labels": torch.randint(0, 3, (len(masks),), generator=generator),
        "crowd": torch.rand(len(masks), generator=generator) < 0.2,
        "area": masks.areas(),
        "masks": masks,
    }


def answers(truth, size, seed):
    """Near the objects, and some that are wrong; the most confident first."""
    generator = torch.Generator().manual_seed(seed)
    dense = truth["masks"].dense().float()
    logits = F.interpolate(dense[:, None], (9, 11), mode="bilinear")[:, 0] - 0.5
    logits = torch.cat((logits + 0.3 * torch.randn(logits.shape, generator=generator), -logits))
    boxes = around(F.interpolate(logits[:, None], size, mode="bilinear")[:, 0] > 0)
    labels = torch.cat((truth["labels"], truth["labels"].flip(0)))
    scores = torch.rand(len(logits), generator=generator).sort(descending=True).values
    found = BoxPrediction(boxes, labels, scores, torch.arange(len(boxes)), size)
    return found.with_masks(logits)


def scenes(count=8):
    sizes = [(23, 31), (40, 17), (64, 64)]
    pairs = []
    for i in range(count):
        size = sizes[i % 3]
        truth = objects(i % 5, size, i)
        pairs.append((answers(truth, size, 50 + i), MOVES.reference(truth, size)))
    return pairs


def measured(pairs):
    metrics = InstanceMetrics(LABELS)
    for answer, target in pairs:
        metrics.update([answer], [target])
    return metrics


# ---- numbers


def test_numbers_are_pycocotools():
    pairs = scenes()
    result = measured(pairs).compute()
    for prefix, kind in (("", "segm"), ("box_", "bbox")):
        ours = [-1.0 if (v := result[prefix + name]) is None else v for name in NUMBERS]
        theirs = by_pycocotools(SegmentInstances(LABELS), pairs, kind).stats.tolist()
        assert ours == pytest.approx(theirs, abs=1e-12)
    assert 0 < result["ap"] < 1
    assert result["ap"] != result["box_ap"]


def test_nothing_found_and_nothing_there():
    nothing = objects(0)
    answer = answers(nothing, (23, 31), 0)
    target = MOVES.reference(nothing, (23, 31))
    assert measured([(answer, target)]).compute()["ap"] == 0
    full = MOVES.reference(objects(3), (23, 31))
    result = measured([(answer, full), (answers(objects(2), (23, 31), 1), target)]).compute()
    assert result["ap"] == result["f1"] == 0


def test_constant_ellipses_fill_their_boxes():
    boxes = torch.tensor([[0.5, 0.5, 0.5, 0.25], [0.2, 0.3, 0.4, 0.4]])
    for box, logits in zip(boxes, ellipses(boxes), strict=True):
        inside = logits > 0
        assert float(inside.float().mean()) == pytest.approx(
            np.pi / 4 * float(box[2:].prod()), rel=0.05
        )
        edges = normalised(around(inside[None])[0], (64, 64))
        assert torch.allclose(edges, box, atol=0.03)


# ---- masks, and how they move


def test_numbers_in_pixels_are_masks():
    values = np.random.default_rng(0).integers(0, 6, (13, 9)) * 1000
    numbers = [1000, 3000, 5000]
    masks = InstanceMasks.of_numbers(values.astype(np.uint16), numbers)
    assert np.array_equal(masks.dense().numpy(), [values == number for number in numbers])
    assert masks.areas().tolist() == [(values == number).sum() for number in numbers]


def test_masks_move_as_their_image_does():
    """As dense masks of the same rows and columns; an image that has the masks as its channels says
    the same."""
    truth, size = objects(4), (23, 31)
    dense = truth["masks"].dense()
    moved = MOVES.crop(MOVES.hflip(truth, size), size, 3, 5, 15, 99)
    moved = MOVES.resize(moved, (15, 26), (30, 52))
    target = MOVES.target(moved, (30, 52))
    expected = dense.flip(2)[:, 3:18, 5:31]
    left = expected.flatten(1).any(dim=1)
    large = expected[left].repeat_interleave(2, 1).repeat_interleave(2, 2)
    assert torch.equal(target["masks"], large)
    assert torch.equal(target["labels"], truth["labels"][left])
    assert torch.allclose(to_pixels(target["boxes"], (30, 52)), around(large), atol=1e-3)


def test_of_what_is_cut_the_box_is_that_of_the_remaining_mask():
    """An L: of its box, the crop has half, but of its mask only the foot."""
    dense = torch.zeros(3, 10, 10, dtype=torch.bool)
    dense[0, 0:10, 0:2] = dense[0, 8:10, 0:10] = True
    dense[1, 0:2, 0:10] = True  # outside of the crop
    dense[1, 0:10, 0:2] = True  # and here, too: but its box is not
    dense[2, 6:8, 6:8] = True
    masks = InstanceMasks.of(dense)
    truth = {"boxes": masks.boxes(), "labels": torch.arange(3), "crowd": torch.zeros(3).bool()}
    truth["boxes"][2] = torch.tensor([5.5, 6, 8, 8])  # as annotated, a little larger
    cut = MOVES.crop({**truth, "masks": masks}, (10, 10), 4, 4, 6, 6)
    target = MOVES.target(cut, (6, 6))
    assert target["labels"].tolist() == [0, 2]
    boxes = to_pixels(target["boxes"], (6, 6))
    assert torch.allclose(boxes, torch.tensor([[0, 4.0, 6, 6], [1.5, 2, 4, 4]]))


def test_a_programs_own_augmentation_may_give_dense_masks():
    truth = objects(3)
    plain = {**truth, "masks": truth["masks"].dense()}
    a, b = (MOVES.target(MOVES.hflip(each, (23, 31)), (23, 31)) for each in (truth, plain))
    assert all(torch.equal(a[name], b[name]) for name in a)


# ---- loss


def output(masks, groups=1, seed=0):
    """As a model gives it whose first queries have these masks (b, q, h, w), as logits."""
    generator = torch.Generator().manual_seed(seed)
    count = (len(masks), masks.shape[1])
    logits = torch.randn(2, *count, 3, generator=generator)
    boxes = torch.rand(2, *count, 4, generator=generator) * 0.4 + 0.2
    both = masks[None].expand(2, *masks.shape)
    return RFDETROutput(logits, boxes, logits[0], boxes[0], groups, both, masks)


def targets(*counts):
    found = [
        MOVES.target(objects(count, (24, 32), i + 1), (24, 32)) for i, count in enumerate(counts)
    ]
    return [{**each, "crowd": torch.zeros(len(each["labels"])).bool()} for each in found]


def test_right_masks_cost_nothing_and_crowds_are_not_learned():
    (target,) = targets(3)
    right = torch.where(target["masks"], 30.0, -30.0)[None]
    wrong = -right
    task = SegmentInstances(LABELS)
    good, bad = (task.loss(output(each), [target]) for each in (right, wrong))
    # edges are between pixels, where points are interpolated
    assert good["mask"] < 0.2 * bad["mask"]
    assert good["dice"] < 0.2 * bad["dice"]
    assert {name.split("_")[-1] for name in good} == {"class", "box", "giou", "mask", "dice"}
    crowded = {**target, "crowd": torch.ones(len(target["labels"])).bool()}
    assert task.loss(output(wrong), [crowded])["mask"] == 0
    assert task.count_of([crowded, target]) == len(target["labels"])


def test_masks_are_padded_as_their_images_are():
    """In a batch of different sizes, the mask of a small image is in its corner of the map."""
    (small,), (large,) = targets(2), targets(2)
    small = {**small, "masks": small["masks"][:, :12, :16]}
    masks = torch.full((2, 4, 24, 32), -30.0)
    masks[0, : len(small["masks"]), :12, :16][small["masks"]] = 30.0
    masks[1, : len(large["masks"])][large["masks"]] = 30.0
    good = SegmentInstances(LABELS).loss(output(masks), [small, large])
    bad = SegmentInstances(LABELS).loss(output(-masks), [small, large])
    assert good["mask"] < 0.2 * bad["mask"]


def test_groups_and_a_given_count():
    found = targets(2, 0, 3)
    masks = torch.randn(3, 8, 6, 8, requires_grad=True)
    task = SegmentInstances(LABELS)
    torch.manual_seed(0)
    whole = task.loss(output(masks, groups=2), found)
    torch.manual_seed(0)
    same = task.loss(output(masks, groups=2), found, count=task.count_of(found))
    assert all(torch.allclose(whole[name], same[name]) for name in whole)
    sum(whole.values()).backward()
    assert masks.grad.abs().sum() > 0


# ---- results


def test_masks_of_results():
    truth = objects(3, (40, 17), 4)
    answer = answers(truth, (40, 17), 5)
    (result,) = SegmentInstances(LABELS, threshold=0.3).decode([answer], ["a.png"])
    assert isinstance(result, InstanceSegmentation)
    assert len(result.objects) == int((answer.scores >= 0.3).sum())
    logits = torch.stack([torch.from_numpy(part.logits).float() for (part,) in answer.masks])
    large = F.interpolate(logits[:, None], (40, 17), mode="bilinear")[:, 0] > 0
    for found, mask in zip(result.objects, large.numpy(), strict=False):
        assert np.array_equal(found.mask, mask)
        assert np.array_equal(cocomask.decode(found.rle), mask)
        assert found.area == mask.sum()
    record = json.loads(json.dumps(result.to_dict()))
    assert record["objects"][0]["segmentation"]["size"] == [40, 17]
    first = result.ids_mask == 1
    assert np.array_equal(first, result.objects[0].mask)
    assert len(result.above(0.0).objects) == len(answer.scores)
    tracked = SegmentInstances(LABELS).tracker()(result)
    assert [found.track for found in tracked.objects] == [*range(1, len(result.objects) + 1)]
    kept = answer.suppressed(0.0)
    assert len(kept.masks) == len(kept.boxes) < len(answer.boxes)


# ---- data


@pytest.fixture(scope="module")
def scene():
    """Two images with objects that do not overlap: what every format can say."""
    random, found = np.random.default_rng(3), []
    for height, width in ((30, 40), (24, 20)):
        numbers = np.zeros((height, width), np.uint16)
        numbers[2:10, 3:12], numbers[12:20, 6:18] = 1, 2
        numbers[4:8, 6:9] = 0  # a hole, which polygons cannot have
        found.append((random.integers(0, 255, (height, width, 3), np.uint8), numbers))
    return found


def write_coco(root, scene, *, outline, boxes=True):
    (root / "images").mkdir(parents=True)
    images, rows = [], []
    for i, (image, numbers) in enumerate(scene):
        Image.fromarray(image).save(root / "images" / f"{i}.png")
        entry = {"id": i + 1, "file_name": f"{i}.png"}
        images.append(entry | {"height": image.shape[0], "width": image.shape[1]})
        for number in (1, 2):
            row = {"id": len(rows) + 1, "image_id": i + 1, "category_id": 10 * number, "iscrowd": 0}
            mask = numbers == number
            rows.append(row | {"segmentation": outline(mask)})
            if boxes:
                left, top, right, bottom = around(torch.from_numpy(mask)[None])[0].tolist()
                rows[-1] |= {"bbox": [left, top, right - left, bottom - top]}
                rows[-1] |= {"area": float(mask.sum())}
    kinds = [{"id": 10, "name": "cup"}, {"id": 20, "name": "plate"}]
    values = {"images": images, "annotations": rows, "categories": kinds}
    (root / "instances_train.json").write_text(json.dumps(values))
    return root


def compressed(mask):
    runs = cocomask.encode(np.asfortranarray(mask, np.uint8))
    return {"size": runs["size"], "counts": runs["counts"].decode()}


def polygon(mask):
    left, top, right, bottom = around(torch.from_numpy(mask)[None])[0].tolist()
    return [[left, top, right, top, right, bottom, left, bottom]]


@pytest.mark.parametrize("boxes", [True, False])
def test_coco(scene, tmp_path, boxes):
    """Masks with holes, as RLE; for others see data/test_annotations.py and data/test_coco.py."""
    source = open_source(
        write_coco(tmp_path / "d", scene, outline=compressed, boxes=boxes), truth="instances"
    )
    assert source.labels.names == ("cup", "plate")
    for sample in [*source.splits["train"], *source.splits["val"]]:
        numbers = scene[int(sample.id.split("/")[-1][0])][1]
        truth = source.truth(sample)
        assert np.array_equal(truth["masks"].dense().numpy(), [numbers == 1, numbers == 2])
        assert truth["labels"].tolist() == [0, 1]
        assert truth["boxes"].tolist() == [[3, 2, 12, 10], [6, 12, 18, 20]]
    if boxes:
        assert open_source(tmp_path / "d").truth_kind == "boxes"  # as before


def test_coco_as_train_opens_it(printed):
    assert "instance" in printed("data", "check", box_folder(), "--task", "instance")


def write_numbers(root, scene, change=lambda numbers: numbers):
    for folder in ("images", "instances"):
        (root / folder).mkdir(parents=True)
    for i, (image, numbers) in enumerate(scene):
        Image.fromarray(image).save(root / "images" / f"{i}.jpg")
        Image.fromarray(change(numbers)).save(root / "instances" / f"{i}.png")
    return root


def test_numbers_that_have_the_class(scene, tmp_path):
    """26003 is an object of class 26, 24 a crowd of class 24, and 7 nothing to find."""

    def change(numbers):
        found = np.where(numbers == 1, 26003, 0) + np.where(numbers == 2, 24, 0)
        found[0] = 7
        return found.astype(np.uint16)

    root = write_numbers(tmp_path / "d", scene, change)
    (root / "classes.json").write_text(json.dumps({"24": "person", "26": "car"}))
    source = open_source(root)
    truth = source.truth(source.splits["train"][0])
    assert truth["labels"].tolist() == [0, 1]
    assert truth["crowd"].tolist() == [True, False]
    (root / "classes.json").write_text(json.dumps({"24": "person", "25": "rider"}))
    source = open_source(root)
    with pytest.raises(DataError, match="26003 is object 3 of class 26"):
        source.truth(source.splits["train"][0])
    (root / "classes.json").write_text(json.dumps({"24": "person", "26": None}))
    source = open_source(root)
    assert source.truth(source.splits["train"][0])["labels"].tolist() == [0]


def test_from_python(scene):
    pairs = [
        (image, {"masks": np.stack([n == 1, n == 2, n == 9]), "labels": ["cup", "plate", "cup"]})
        for image, n in scene
    ] * 4
    source = from_python(pairs)
    assert source.truth_kind == "instances"
    truth = source.truth(source.splits["train"][0])
    assert truth["labels"].tolist() == [0, 1]  # the third has no pixel
    assert truth["boxes"].tolist() == [[3, 2, 12, 10], [6, 12, 18, 20]]
    both = [(image, {**target, "boxes": [[0, 0, 1, 1]] * 3}) for image, target in pairs]
    assert from_python(both).truth_kind == "boxes"
    assert from_python(both, truth="instances").truth_kind == "instances"


@pytest.mark.parametrize(
    ("masks", "labels", "says"),
    [
        (np.ones((1, 5, 5), bool), ["cup"], "the masks are"),
        (np.ones((30, 40), bool), ["cup"], "the masks are"),
        (np.ones((2, 30, 40), bool), ["cup"], "2 masks, 1 label"),
        (np.full((1, 30, 40), 0.5), ["cup"], "fractions"),
    ],
)
def test_bad_data_from_python(scene, masks, labels, says):
    source = from_python([(scene[0][0], {"masks": masks, "labels": labels})] * 5)
    with pytest.raises(DataError, match=says):
        source.truth(source.splits["train"][0])


def test_an_rle_that_claims_to_be_huge_is_refused_undecoded(scene, tmp_path):
    def huge(mask):
        return {"size": [10**6, 10**6], "counts": [10**12]}

    source = open_source(
        write_coco(tmp_path / "d", scene, outline=huge, boxes=False), truth="instances"
    )
    with pytest.raises(DataError, match=r"annotation \d: its mask is .* at most"):
        source.truth(source.splits["train"][0])


def test_the_data_check_sees_empty_masks_and_boxes_elsewhere(scene, tmp_path):
    """A polygon of two points encloses nothing, another has its pixels far from its box."""
    shapes = iter([[[1, 1, 5, 5]], polygon, compressed, [[30, 22, 39, 22, 39, 29, 30, 29]]])

    def outline(mask):
        shape = next(shapes)
        return shape(mask) if callable(shape) else shape

    source = open_source(
        write_coco(tmp_path / "d", [scene[0], scene[0]], outline=outline), truth="instances"
    )
    found = "\n".join(f"{problem.file}: {problem.what}" for problem in check(source).problems)
    assert "annotation 1: its outline encloses nothing: left out" in found
    assert "annotation 4: its box and the box around its mask have an IoU of only" in found


def test_shapes_have_exact_masks():
    source = open_source("shapes:20", truth="instances")
    boxes = open_source("shapes:20", truth="boxes")
    for sample in source.splits["val"]:
        truth = source.truth(sample)
        assert torch.equal(truth["boxes"], boxes.truth(sample)["boxes"])
        assert torch.equal(truth["masks"].boxes(), truth["boxes"])


# ---- models and commands


def test_a_model_without_masks_is_refused_with_a_remedy(tmp_path, refused):
    words = ("train", box_folder(), "--task=instance", "--model=rf-detr-n", "--dry-run")
    told = refused(*words, f"--out={tmp_path / 'run'}")
    assert "finds boxes without masks: give --set masks=true" in told


def test_imported_models_with_masks_are_for_this_task():
    from vitreous.tasks import task_of_model

    model = vitreous.create("rf-detr-seg-mini", image_size=64)
    assert task_of_model("rf-detr", model.config) == "instance"
    assert task_of_model("rf-detr", vitreous.create("rf-detr-n", image_size=64).config) == "detect"


@pytest.fixture(scope="module")
def run():
    return trained("instance", "--epochs=1", drawn=True)


def test_from_data_to_results(run, tmp_path, printed):
    assert "mask AP" in (run / "report.html").read_text()
    images = box_folder() / "test"
    paths = sorted(map(str, images.glob("*.png")))[:3]
    words = ("predict", run, *paths, "--threshold=0")
    record = json.loads(printed(*words, "--json").splitlines()[0])
    height, width = record["size"]
    first = record["objects"][0]["segmentation"]
    assert cocomask.decode(first).shape == (height, width)
    out = tmp_path / "out"
    printed(*words, "--out", out)
    assert {path.name for path in out.glob("0*")} == {"0-objects.jpg", "0-instances.png", "0.json"}
    with Image.open(out / "0-instances.png") as picture:
        numbers = np.asarray(picture)
    with Image.open(paths[0]) as image:
        assert numbers.shape == image.size[::-1]
    rows = json.loads((out / "results.json").read_text())
    assert {"segmentation", "bbox", "score", "file_name"} <= rows[0].keys()
    labels = tmp_path / "labels"
    printed(*words, "--save-labels=coco", "--out", labels)
    again = open_source(labels, truth="instances")
    assert {len(again.truth(s)["labels"]) for s in again.splits["train"]} <= set(range(1, 9))


def test_masks_become_polygons_and_masks_again(tmp_path):
    """Also of several parts with holes in them, and where pixels touch at a corner."""
    masks = blobs(6, (60, 45), 8)
    masks[0] = False
    masks[1, ::2, ::2] ^= True
    masks[2] = torch.eye(60, 45) > 0
    masks[3] = True
    logits = masks.float() * 2 - 1
    scores = torch.linspace(0.9, 0.6, 6)
    boxes = BoxPrediction(around(masks), torch.arange(6) % 3, scores, torch.arange(6), (60, 45))
    path = str(tmp_path / "a.png")
    Image.new("RGB", (45, 60)).save(path)
    (result,) = SegmentInstances(LABELS).decode([boxes.with_masks(logits)], [path])
    told, show = [], show_of("instance")
    out = {"format": "yolo", "out": tmp_path / "yolo", "names": {path: "a"}, "labels": LABELS}
    with show.labelling(**out, log=told.append) as add:
        add(result, path)
    assert told == ["left out, as their masks have no pixel: 1 object"]
    source = open_source(tmp_path / "yolo", truth="instances")
    assert source.labels.names == LABELS.names
    truth = source.truth(source.splits["train"][0])
    assert truth["labels"].tolist() == (torch.arange(1, 6) % 3).tolist()
    assert torch.equal(truth["masks"].dense(), masks[1:])


def test_in_tiles(run, printed):
    path = next((box_folder() / "test").glob("*.png"))
    plain, tiled = (
        json.loads(printed("predict", run, path, "--json", "--threshold=0", *more))
        for more in ((), ("--tile=16", "--overlap=0.3"))
    )
    assert len(tiled["objects"]) > len(plain["objects"])
    assert all(each["segmentation"]["size"] == plain["size"] for each in tiled["objects"])
    found = json.loads(printed("evaluate", run, "--json", "--tile=24"))
    assert 0 <= found["ap"] <= 1


def test_numbers_of_a_results_file_are_those_of_the_model(run, tmp_path, printed, refused):
    results, figures = tmp_path / "results.json", tmp_path / "figures"
    words = ("evaluate", run, box_folder(), "--json")
    own = json.loads(printed(*words, "--results", results, "--figures", figures))
    read = json.loads(printed(*words, "--from", results))
    assert {k: read[k] for k in NUMBERS} == pytest.approx({k: own[k] for k in NUMBERS})
    assert any(figures.iterdir())
    rows = json.loads(results.read_text())
    rows[0]["segmentation"] = [[1, 2, 3]]
    results.write_text(json.dumps(rows))
    assert "row 0: its mask is" in refused(*words, "--from", results)


def test_videos_are_drawn_and_tracked(run, tmp_path, printed):
    clip = write_video(tmp_path / "clip.mp4", [moving(number) for number in range(3)])
    options = ("--threshold=0", "--track", "--out", tmp_path / "drawn", "--json")
    records = [json.loads(line) for line in printed("predict", run, clip, *options).splitlines()]
    assert len(records) == 3
    assert {"track", "segmentation"} <= records[-1]["objects"][0].keys()
    assert list((tmp_path / "drawn").glob("clip*.mp4"))


def test_around_a_classifier(tmp_path, printed):
    """The mask head comes by itself."""
    words = ("train", box_folder(), "--task=instance", f"--weights={teacher()}", "--epochs=1")
    more = ("--image-size", "32", "32", "--set=groups=2", f"--out={tmp_path / 'run'}")
    with undrawn():
        printed(*words, *more)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["task"], config["config"]["masks"]) == ("instance", True)


def test_explained(run, tmp_path, printed):
    path = next((box_folder() / "test").glob("*.png"))
    printed("explain", run, path, "--out", tmp_path / "found")
    assert {"objects.png", "look.html"} <= {each.name for each in (tmp_path / "found").rglob("*")}


def test_what_has_no_meaning_is_refused(run, refused):
    path = next((box_folder() / "test").glob("*.png"))
    told = refused("predict", run, path, "--save-labels=voc", "--out=labels")
    assert "--save-labels voc: for the task instance use one of yolo, coco" in told
    with pytest.raises(ConfigError, match="threshold"):
        vitreous.load(run)(path).above(2)


def test_the_first_batch_is_drawn(tmp_path):
    train(tmp_path / "run", "--dry-run", task="instance", drawn=True)
    with Image.open(tmp_path / "run-first-batch.png") as drawn:
        assert drawn.width > 500
