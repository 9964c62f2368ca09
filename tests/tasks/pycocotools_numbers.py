"""What pycocotools says of predictions: through its records, as everybody does it."""

import contextlib
import io

from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from vitreous.tasks.objects.boxes import to_pixels


def by_pycocotools(task, pairs, kind="bbox"):
    """Its evaluation of pairs of a prediction and a target; the data's own ids, boxes as left, top,
    width, height."""
    images, truth, found = [], [], []
    results = task.decode([answer for answer, _ in pairs], [""] * len(pairs))
    for number, ((answer, target), result) in enumerate(zip(pairs, results, strict=True)):
        id, (height, width) = 1000 + 7 * number, answer.size
        images.append({"id": id, "height": height, "width": width})
        boxes = to_pixels(target["boxes"].double(), answer.size).tolist()
        masks = target["masks"].encoded() if "masks" in target else [None] * len(boxes)
        for i, (left, top, right, bottom) in enumerate(boxes):
            box = [left, top, right - left, bottom - top]
            area = float(target["area"][i]) if "area" in target else box[2] * box[3]
            row = {"id": len(truth) + 1, "image_id": id, "bbox": box, "area": area}
            row |= {"category_id": task.labels.numbers[target["labels"][i]]}
            row |= {"iscrowd": int("crowd" in target and target["crowd"][i])}
            truth.append({**row, "segmentation": masks[i]})
        found += result.to_coco(id)
    if kind == "segm":  # whose area pycocotools takes from boxes, if there are some
        found = [{key: value for key, value in row.items() if key != "bbox"} for row in found]
    with contextlib.redirect_stdout(io.StringIO()):
        data = COCO()
        categories = [{"id": id} for id in task.labels.numbers]
        data.dataset = {"info": {}, "images": images, "annotations": truth}
        data.dataset["categories"] = categories
        data.createIndex()
        evaluated = COCOeval(data, data.loadRes(found), kind)
        evaluated.evaluate()
        evaluated.accumulate()
        evaluated.summarize()
    return evaluated
