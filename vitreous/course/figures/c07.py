"""Chapter 7: how far a convolution sees, and how far attention does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vitreous.course.vit import ViT
from vitreous.pages.figure import ACCENTS, DASHES, LINE, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHINESE = {
    "1 convolution": "1 层卷积",
    "4 convolutions": "4 层卷积",
    "8 convolutions": "8 层卷积",
    "1 block of a ViT": "ViT 的 1 个编码块",
    "pixels that can change one output": "能影响一个输出的像素",
    "convolutions or blocks": "卷积层数或编码块数",
    "side of the receptive field, pixels": "感受野的边长，像素",
    "ViT, images of 224": "ViT，224 像素的图像",
    "ResNet-50": "ResNet-50",
    "3 × 3 convolutions": "3 × 3 卷积",
}
SIDE = 32


@styled
def fields() -> Figure:
    """Which pixels of an image change one output in its middle, in untrained networks."""
    figure = new_figure(5.6, 1.9)
    names = ("1 convolution", "4 convolutions", "8 convolutions", "1 block of a ViT")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = [_convolved(1), _convolved(4), _convolved(8), _attended()]
    for place, (name, seen) in enumerate(zip(names, found, strict=True)):
        axes = figure.add_subplot(1, 4, place + 1)
        axes.imshow((seen > 0).float().numpy(), cmap="Blues", vmin=0, vmax=1.6)
        axes.set_title(name, fontsize=8, fontweight="normal")
        axes.set_xticks([])
        axes.set_yticks([])
    figure.supxlabel("pixels that can change one output", fontsize=9, color=SOFT)
    return figure


def _convolved(layers: int) -> Tensor:
    stack = nn.Sequential(*(nn.Conv2d(4 if i else 1, 4, 3, padding=1) for i in range(layers)))
    return _seen(lambda images: stack(images)[0, :, SIDE // 2, SIDE // 2])


def _attended() -> Tensor:
    model = ViT(SIDE, 4, 1, 32, 1, 2, 64, 10)
    middle = 1 + 4 * 8 + 4  # behind the class token, row 4, column 4
    return _seen(lambda images: model.blocks(model.embed(images))[0, middle])


def _seen(output: Callable[[Tensor], Tensor]) -> Tensor:
    """How much each pixel changes some outputs: the size of their gradient."""
    image = torch.rand(1, 1, SIDE, SIDE, requires_grad=True)
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(output(image).sum(), image)
    return gradient[0, 0].abs()


@styled
def growth() -> Figure:
    """The receptive field, layer by layer."""
    figure = new_figure(4.8, 2.8)
    axes = figure.add_subplot()
    plain = [(i, 1 + 2 * i) for i in range(17)]
    rows = (
        ("3 × 3 convolutions", plain),
        ("ResNet-50", _resnet()),
        ("ViT, images of 224", [(0, 16), *((i, 224) for i in range(1, 13))]),
    )
    for (name, points), colour, dash in zip(rows, ACCENTS, DASHES, strict=True):
        axes.plot(*zip(*points, strict=True), color=colour, ls=dash, marker="o", ms=3, label=name)
    axes.set(
        xlabel="convolutions or blocks", ylabel="side of the receptive field, pixels", xlim=(0, 18)
    )
    axes.grid(color=LINE)
    axes.legend()
    return figure


def _resnet() -> list[tuple[int, int]]:
    """Behind each 3x3 convolution (and the first, with its pooling): its number, and the side."""
    side, step, found = 11, 4, [(0, 1), (1, 11)]
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            side += 2 * step
            step *= 2 if stage and not block else 1
            found.append((len(found), side))
    return found
