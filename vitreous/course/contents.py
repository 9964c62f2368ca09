"""The chapters of the course, by their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Title(NamedTuple):
    """Of a chapter."""

    en: str
    zh: str


CHAPTERS: Mapping[int, Title] = {
    1: Title("Images as words", "把图像当作词"),
    2: Title("Where am I", "我在哪里"),
    3: Title("Attention by hand", "手算注意力"),
    4: Title("A block", "一个编码块"),
    5: Title("What the head reads", "分类头读什么"),
    6: Title("Sizes", "模型的大小"),
    7: Title("Data and inductive bias", "数据与归纳偏置"),
    8: Title("Other resolutions", "其他分辨率"),
    9: Title("Looking inside", "看看里面"),
    10: Title("Pre-train, fine-tune, distil", "预训练、微调与蒸馏"),
    11: Title("Windows and pyramids", "窗口与金字塔"),
    12: Title("Masks and boxes", "掩码与边界框"),
    13: Title("From model to product", "从模型到产品"),
}
