"""What is advised for pre-training."""

from __future__ import annotations

from vitreous.data.source import Source
from vitreous.models import FAMILIES
from vitreous.tasks.defaults import Defaults, Glance, ModelChoice


class PretrainDefaults(Defaults):
    muon_lr = 1  # as it was measured with MAE

    def __init__(self, family: str | None = None, example: str = Defaults.example) -> None:
        """family: that of the method's models, around an encoder; None: the encoder's own."""
        self.family, self.example = family, example

    def choose_model(self, source: Source, glance: Glance) -> ModelChoice:
        """A plain ViT with fixed positions, whose patches are averaged."""
        name, size, fields, what = encoder_for(glance)
        if self.family is None:
            return ModelChoice(name, size, fields, what)
        part = FAMILIES[self.family].part
        inside = (f"{part}.{each}" for each in fields)
        return ModelChoice(self.family, size, (f"{part}={name}", *inside), what)

    def effort(self, glance: Glance, *, fine_tunes: bool) -> tuple[int, int, int]:
        """There is more to learn from images than their labels: more passes pay."""
        return 5, 100, 160_000 if glance.on_cpu else 6_000_000

    def crop_for(self, small: bool, fits: bool) -> str:
        return "resized"


def encoder_for(glance: Glance) -> tuple[str, tuple[int, int], tuple[str, ...], str]:
    """Its name, the image size, changes to its config, and what it is in words."""
    plain = ("position=sines-2d", "tokens=none", "pool=mean")
    if not glance.small:
        side, size = (128, "ti") if glance.on_cpu else (224, "s")
        return f"vit-{size}/16", (side, side), plain, f"a ViT-{size.capitalize()}/16"
    side = max(glance.height, glance.width)
    patch = 2 if side <= 16 else 4 if side <= 40 else 8
    dim, depth, heads = (64, 6, 4) if side <= 16 else (128, 6, 4)
    sizes = (
        f"patch={patch}",
        f"dim={dim}",
        f"depth={depth}",
        f"heads={heads}",
        f"mlp_dim={2 * dim}",
    )
    reason = f"a ViT of {depth} blocks, {dim} wide, with patches of {patch}"
    return "vit", glance.whole_patches(patch), (*sizes, *plain), reason
