"""A forward of Swin-T beside timm's, transformers' and torchvision's, interleaved.

python examples/swin_speed.py [--rounds N] [--batch N]
"""

from __future__ import annotations

import time

import timm
import torch
import torchvision
import transformers
import tyro

import vitreous


@torch.inference_mode()
def main(rounds: int = 8, batch: int = 4) -> None:
    """Args:
    rounds: Forward passes of which the fastest counts.
    batch: Images per forward pass.
    """
    images = torch.randn(batch, 3, 224, 224)
    models = {
        "vitreous": vitreous.create("swin-t"),
        "timm": timm.create_model("swin_tiny_patch4_window7_224"),
        "torchvision": torchvision.models.swin_t(),
        "transformers": transformers.SwinForImageClassification(transformers.SwinConfig()),
    }
    best = dict.fromkeys(models, float("inf"))
    for model in models.values():
        model.eval()(images)
    for _ in range(rounds):
        for name, model in models.items():
            began = time.perf_counter()
            model(images)
            best[name] = min(best[name], time.perf_counter() - began)
    for name, seconds in best.items():
        print(f"{name:<13} {seconds:.3f} s, {seconds / best['vitreous']:.2f} of ours")


if __name__ == "__main__":
    tyro.cli(main)
