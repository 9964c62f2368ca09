"""What a model is for: its loss, how its output becomes a result, and how good it is."""

from __future__ import annotations

from vitreous.tasks.classify.task import Classify
from vitreous.tasks.detect.task import Detect
from vitreous.tasks.segment.task import Segment
from vitreous.tasks.task import Task

TASKS: dict[str, type[Task]] = {"classify": Classify, "segment": Segment, "detect": Detect}

__all__ = ["TASKS", "Classify", "Detect", "Segment", "Task"]
