"""Chapter 13: formats of numbers, levels of integers, what a machine waits for, and a queue."""

from __future__ import annotations

import math
import random
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vitreous.course.model import digits
from vitreous.data.formats import open_source
from vitreous.layers.tap import tap
from vitreous.pages.figure import ACCENTS, DASHES, INK, SOFT, new_figure, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHINESE = {
    "float32": "float32",
    "bfloat16": "bfloat16",
    "float16": "float16",
    "sign": "符号",
    "exponent: how far numbers reach": "指数：能表示多大多小",
    "fraction: how fine the steps are": "尾数：步子有多细",
    "symmetric": "对称",
    "asymmetric": "非对称",
    "output of GELU": "GELU 的输出",
    "operations for each byte": "每字节的运算次数",
    "GFLOP/s": "GFLOP/s",
    "sum of the residual": "残差的求和",
    "1 token: 0.5": "1 个标记：0.5",
    "197 tokens: 75": "197 个标记：75",
    "waiting for memory": "等内存",
    "computing": "在计算",
    "requests per second": "每秒请求数",
    "milliseconds, 99 % are faster": "毫秒，99% 的请求更快",
    "one by one": "逐个计算",
    "batches of up to 8": "最多 8 个一批",
    "and room for 64": "再加上最多等 64 个",
}
BLUE, ORANGE, GREEN = ACCENTS
FORMATS = {"float32": (1, 8, 23), "bfloat16": (1, 8, 7), "float16": (1, 5, 10), "int8": (1, 0, 7)}
"""Bits of sign, exponent and fraction."""
PEAK, BANDWIDTH = 500.0, 20.0
"""Of the machine in the roofline, an example: GFLOP/s, and GB/s from memory."""


def served(
    rate: float, batch: int, room: int | None = None, seconds: float = 20
) -> tuple[list[float], int]:
    """A simulated server: how long answers took, in ms; how many were refused.

    Requests come at random, `rate` per second; a batch of n takes 8 + 2 n ms.
    """
    chance, now, arrivals = random.Random(0), 0.0, []
    while now < 1000 * seconds:
        now += 1000 * chance.expovariate(rate)
        arrivals.append(now)
    waiting, taken, refused, free = deque[float](), [], 0, 0.0
    for arrival in (*arrivals, math.inf):
        while waiting and max(free, waiting[0]) < arrival:
            size = min(batch, len(waiting))
            together = [waiting.popleft() for _ in range(size)]
            free = max(free, together[0]) + 8 + 2 * size
            taken += [free - each for each in together]
        if room is not None and len(waiting) == room:
            refused += 1
        else:
            waiting.append(arrival)
    return taken, refused


@styled
def floats() -> Figure:
    """The bits of four formats, drawn to one scale."""
    figure = new_figure(6.2, 1.9)
    axes = figure.add_subplot()
    names = {
        INK: "sign",
        BLUE: "exponent: how far numbers reach",
        ORANGE: "fraction: how fine the steps are",
    }
    for y, (name, parts) in enumerate(FORMATS.items()):
        left = 0
        for width, colour in zip(parts, names, strict=True):
            for bit in range(left, left + width):
                axes.barh(-y, 0.9, left=bit, height=0.62, color=colour, alpha=0.75)
            left += width
        axes.text(-0.6, -y, name, ha="right", va="center", fontsize=9)
    for x, (colour, name) in zip((0, 5, 19.5), names.items(), strict=True):
        axes.text(x, 0.75, name, color=colour, fontsize=8)
    axes.set_xlim(-5, 32.2)
    axes.set_ylim(-3.5, 1.2)
    axes.set_axis_off()
    return figure


@styled
def levels() -> Figure:
    """What GELU gives in block 1, and where the 16 levels of 4 bits lie."""
    seen: dict[str, Tensor] = {}
    model = digits().model
    parts = {"mlp": model.get_submodule("blocks.0.mlp")}
    with tap(parts, seen.__setitem__, inside=True), torch.no_grad():
        model(test_images())
    values = seen["mlp.activated"].flatten()
    low, high = float(values.min()), float(values.max())
    even, step = high / 7, (high - low) / 15
    zero = round(-low / step)
    shown = {
        "symmetric": [even * level for level in range(-7, 8)],
        "asymmetric": [step * (level - zero) for level in range(16)],
    }
    figure = new_figure(6.2, 2.3)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, (name, places), colour in zip(panels, shown.items(), (ORANGE, BLUE), strict=True):
        axes.hist(values.numpy(), bins=80, range=(low, high), color=SOFT, alpha=0.45, log=True)
        for place in places:
            axes.axvline(place, ymax=0.85, color=colour, linewidth=1.1)
        axes.set_title(name, fontsize=9, fontweight="normal", color=colour)
        axes.set_xlim(-high * 1.05, high * 1.1)
        axes.set_yticks([])
        axes.minorticks_off()
        axes.set_xlabel("output of GELU")
        axes.spines["left"].set_visible(False)
    return figure


def intensity(tokens: int, given: int, made: int, size: int = 4) -> float:
    """Operations for each byte that a linear layer reads and writes."""
    numbers = given * made + tokens * (given + made)  # weights; in and out
    return 2 * tokens * given * made / (size * numbers)


@styled
def roofline() -> Figure:
    """How fast a machine can be, by how much is computed with each byte that is read."""
    figure = new_figure(6.2, 2.6)
    axes = figure.add_subplot()
    x = np.geomspace(0.05, 1500, 200)
    axes.plot(x, np.minimum(PEAK, BANDWIDTH * x), color=INK, linewidth=1.6)
    marks = (
        ("sum of the residual", 1 / 12, ORANGE, (10, -2), "left"),
        ("1 token: 0.5", intensity(1, 768, 3072), ORANGE, (10, -2), "left"),
        ("197 tokens: 75", intensity(197, 768, 3072), BLUE, (0, -14), "center"),
        ("8 × 197: 221", intensity(8 * 197, 768, 3072), BLUE, (12, 7), "center"),
    )
    for name, at, colour, beside, align in marks:
        speed = min(PEAK, BANDWIDTH * at)
        axes.plot(at, speed, "o", color=colour, markersize=6)
        spot = axes.annotate(name, (at, speed), beside, textcoords="offset points", fontsize=8)
        spot.set(ha=align, color=colour)
    axes.text(2, 100, "waiting for memory", fontsize=8, color=SOFT, ha="right")
    axes.text(60, 700, "computing", fontsize=8, color=SOFT, ha="center")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([0.1, 1, 10, 100, 1000], ["0.1", "1", "10", "100", "1,000"])
    axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axes.minorticks_off()
    axes.set_xlabel("operations for each byte")
    axes.set_ylabel("GFLOP/s")
    return figure


@styled
def latency() -> Figure:
    """The slowest one in a hundred of a simulated server, by how much is asked."""
    figure = new_figure(6.2, 2.6)
    axes = figure.add_subplot()
    rates = (10, 30, 50, 70, 80, 90, 95, 100, 110, 130, 160, 200, 250, 280, 300, 320, 340, 370, 400)
    servers = {"one by one": (1, None), "batches of up to 8": (8, None), "and room for 64": (8, 64)}
    colours = (ORANGE, BLUE, GREEN)
    for (name, (batch, room)), colour, dash in zip(servers.items(), colours, DASHES, strict=True):
        worst = [np.quantile(served(rate, batch, room)[0], 0.99) for rate in rates]
        axes.plot(rates, worst, color=colour, linestyle=dash, label=name)
    axes.set_yscale("log")
    axes.set_ylim(10, 10_000)
    axes.set_yticks([10, 100, 1000, 10_000], ["10", "100", "1,000", "10,000"])
    axes.minorticks_off()
    axes.set_xlabel("requests per second")
    axes.set_ylabel("milliseconds, 99 % are faster")
    axes.grid(axis="y")
    axes.legend(loc="upper left", bbox_to_anchor=(0.36, 1))
    return figure


def test_images() -> Tensor:
    """As the model takes them (n, 1, 8, 8)."""
    source = open_source("digits")
    return torch.stack([digits().prepare(source.image(each)) for each in source.splits["test"]])
