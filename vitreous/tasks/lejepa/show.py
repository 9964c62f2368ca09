"""How what was learned is printed and reported: as vectors, and by which images are alike."""

from __future__ import annotations

from vitreous.tasks.pretrain.show import VectorShow

SHOW = VectorShow()
