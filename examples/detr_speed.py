"""A forward of DETR-R50 on one image, beside transformers', interleaved.

python examples/detr_speed.py [--rounds N] [--size PIXELS]
"""

from __future__ import annotations

import time

import torch
import transformers
import tyro

import vitreous


@torch.inference_mode()
def main(rounds: int = 8, size: int = 640) -> None:
    """Args:
    rounds: Forward passes of which the fastest counts.
    size: Height and width of the image.
    """
    image = torch.randn(1, 3, size, size)
    theirs = transformers.DetrForObjectDetection(transformers.DetrConfig(num_labels=91)).eval()
    ours = vitreous.create("detr-r50").eval()
    vitreous.import_weights(ours, theirs.state_dict(), "huggingface")
    models = {"vitreous": ours, "transformers": theirs}
    best = dict.fromkeys(models, float("inf"))
    wanted, got = theirs(image).logits, ours(image).logits[-1]  # and both are warm
    print(f"difference    {((got - wanted).norm() / wanted.norm()).item():.1e} relative")
    for _ in range(rounds):
        for name, model in models.items():
            began = time.perf_counter()
            model(image)
            best[name] = min(best[name], time.perf_counter() - began)
    for name, seconds in best.items():
        print(f"{name:<13} {seconds:.3f} s, {seconds / best['vitreous']:.2f} of ours")


if __name__ == "__main__":
    tyro.cli(main)
