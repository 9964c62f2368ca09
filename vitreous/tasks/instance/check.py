"""The data check of objects with masks."""

from __future__ import annotations

from vitreous.tasks.objects.check import BoxCheck


class InstanceCheck(BoxCheck):
    """What is checked of boxes, and whether masks are where their boxes are."""
