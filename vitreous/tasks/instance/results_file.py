"""The metrics of COCO's file of results with masks, of any program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vitreous.data.decode.images import shown
from vitreous.data.source import Source
from vitreous.errors import DataError
from vitreous.tasks.instance.metrics import InstanceMetrics
from vitreous.tasks.objects.coco_results import as_prediction, in_unit, read_results


def measure_results(path: Path, source: Source, split: str) -> dict[str, Any]:
    """Rows have a `segmentation` as RLE, of the size of the image. The images are not read."""
    results = read_results(path, source, split, masks=True)
    metrics = InstanceMetrics(source.labels)
    for sample in source.splits[split]:
        found, truth = results.get(sample.id, []), source.truth(sample)
        runs, size = [each.runs for each in found if each.runs], list(truth["masks"].stored)
        if odd := next((each["size"] for each in runs if each["size"] != size), None):
            raise DataError(
                f"{shown(path)}: a mask of image {sample.id} is {odd[0]}x{odd[1]} pixels large, "
                f"but the image is {size[0]}x{size[1]} (height x width)"
            )
        metrics.add_masks(as_prediction(found), in_unit(truth), runs)
    return metrics.compute(metrics.counts()) | {"intervals": metrics.intervals()}
