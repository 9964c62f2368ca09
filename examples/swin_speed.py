"""A forward of Swin-T, batch 4, beside timm's, transformers' and torchvision's, interleaved.

python examples/swin_speed.py [ROUNDS]
"""

from __future__ import annotations

import sys
import time

import timm
import torch
import torchvision
import transformers

import vitreous


@torch.inference_mode()
def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    images = torch.randn(4, 3, 224, 224)
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
    main()
