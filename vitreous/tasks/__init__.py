"""What a model is for: its loss, how its output becomes a result, and how good it is."""

from __future__ import annotations

from vitreous.tasks.classify import Classify
from vitreous.tasks.segment import Segment
from vitreous.tasks.task import Task

TASKS: dict[str, type[Task]] = {"classify": Classify, "segment": Segment}

__all__ = ["TASKS", "Classify", "Segment", "Task"]
