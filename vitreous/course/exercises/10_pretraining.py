"""Chapter 10: fine-tuning, distillation, masks.  第 10 章：微调、蒸馏与掩码。

Complete the functions, then run:  补全下面的函数，然后运行：

    vitreous course check 10
"""

import torch
from torch import Tensor


def learning_rates(depth: int, lr: float, decay: float) -> Tensor:
    """Learning rates by layer: patches and positions, `depth` blocks, norm and head: (depth + 2,).

    The last one is `lr`; each layer before it has `decay` times the rate of the next.
    各层的学习率：图块嵌入与位置编码、`depth` 个编码块、最后的层归一化与分类头。
    最后一个是 `lr`，往前每层乘以 `decay`。
    """
    ...


def soft(student: Tensor, teacher: Tensor, tau: float) -> Tensor:
    """Logits (b, K) of both -> tau² · KL of the softened probabilities, a mean over images: ().

    The divergence of the student from the teacher.
    两者的 logits → tau² 乘以软化后概率的 KL 散度（以教师为准），对图像取平均。
    """
    ...


def hard(own: Tensor, taught: Tensor, labels: Tensor, teacher: Tensor) -> Tensor:
    """Logits of both heads and of the teacher (b, K), labels (b,) -> the loss of DeiT's two tokens.

    `own` is the class token's head, `taught` the distillation token's.
    两个头和教师的 logits、真实标签 → DeiT 两个标记的硬蒸馏损失。
    `own` 属于类别标记，`taught` 属于蒸馏标记。
    """
    ...


def hide(patches: Tensor, noise: Tensor, visible: int) -> tuple[Tensor, Tensor]:
    """Patches (b, n, d), noise (b, n) -> the visible ones (b, visible, d), and the mask (b, n).

    Visible are those with the smallest noise, the smallest first. The mask is 1.0 where hidden.
    噪声最小的 `visible` 个图块可见，按噪声从小到大排列；掩码在被遮处为 1.0，按图块原来的顺序。
    """
    ...


def masked_loss(prediction: Tensor, patches: Tensor, mask: Tensor) -> Tensor:
    """Predictions and pixels (b, n, p), mask (b, n) -> MAE's loss: ().

    Each patch is normalised by its own mean and variance (torch's var, plus 1e-6) to be the target.
    MAE 的损失：目标是每个图块用自身的均值和方差（torch 的 var，再加 1e-6）归一化后的像素。
    """
    ...
