"""How detections are printed, drawn, reported and explained: as all objects are."""

from __future__ import annotations

from vitreous.tasks.objects.show import ObjectShow

SHOW = ObjectShow()
