"""Chapter 10: rates against `train/optimizer.py`, losses against `tasks/classify` and `tasks/mae`,
masks against `models/mae.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vitreous.course.check import ExerciseStep
from vitreous.labels import LabelMap
from vitreous.layers.head import DistilledOutput
from vitreous.models import create
from vitreous.models.mae import Masked, MaskedAutoencoder
from vitreous.tasks import task_for
from vitreous.tasks.mae.task import masked_loss
from vitreous.train.optimizer import parameter_groups


def steps() -> Iterator[ExerciseStep]:
    yield from _rates()
    yield from _soft()
    yield from _hard()
    yield from _hide()
    yield from _masked()


def _rates() -> Iterator[ExerciseStep]:
    depth, lr, decay = 4, 0.01, 0.5
    model = create("vit", depth=depth, dim=8, heads=2, mlp_dim=8, patch=4, image_size=8, classes=2)
    groups = parameter_groups(model, lr=lr, weight_decay=0.0, layer_decay=decay)
    theirs = torch.tensor(sorted(float(group["lr"]) for group in groups))  # type: ignore[arg-type]
    places = torch.arange(depth + 2.0)
    yield ExerciseStep(
        "learning_rates",
        (depth, lr, decay),
        theirs,
        {
            (
                "The order is turned round: the head learns fastest, the patches slowest.",
                "顺序反了：分类头学得最快，图块嵌入最慢。",
            ): theirs.flip(0),
            (
                "The head's own rate is multiplied, too: it keeps lr.",
                "分类头的学习率也乘了一次：它应保持 lr。",
            ): theirs * decay,
            (
                "The rates fall by the same difference; they should fall by the same factor.",
                "学习率按等差递减了，应该按等比递减。",
            ): lr * (places + 1) / (depth + 2),
            (
                "The head has the rate of the last block: it is a layer of its own.",
                "分类头用了最后一个编码块的学习率：它自成一层。",
            ): lr * decay ** (depth - places).clamp(min=0),
        },
        hint=(
            "lr times decay to the power of the distance from the last layer.",
            "lr 乘以 decay 的幂，指数是到最后一层的距离。",
        ),
        tolerance=1e-7,
    )


def _task(distill: str, tau: float = 3.0, share: float = 0.5) -> Any:
    names = LabelMap.of_names(tuple("abcde"))
    kind: Any = task_for("class")
    return kind(names, distill=distill, temperature=tau, distill_share=share)


def _soft() -> Iterator[ExerciseStep]:
    student, teacher, tau = 3 * torch.randn(6, 5), 3 * torch.randn(6, 5), 4.0
    truth = torch.zeros(6, dtype=torch.long)
    task = _task("soft", tau, 1.0)
    targets = task.truth.mix(truth, truth, torch.ones(6))
    theirs = task.loss(student, targets, teacher)["distillation"]
    ours, wanted = (F.log_softmax(each / tau, dim=1) for each in (student, teacher))
    divergence = F.kl_div(ours, wanted, reduction="batchmean", log_target=True)
    turned = F.kl_div(wanted, ours, reduction="batchmean", log_target=True)
    sharp = F.kl_div(student.log_softmax(1), wanted, reduction="batchmean", log_target=True)
    yield ExerciseStep(
        "soft",
        (student, teacher, tau),
        theirs,
        {
            (
                "tau² is missing: without it the gradient becomes weak as tau grows.",
                "漏了 tau²：没有它，tau 越大梯度越弱。",
            ): divergence,
            (
                "The two are swapped: the teacher's probabilities weigh the differences.",
                "两者颠倒了：应该用教师的概率来加权。",
            ): tau**2 * turned,
            (
                "A mean over images and classes; it should be a sum over classes, and a mean over "
                "images (reduction='batchmean').",
                "对图像和类别都取了平均；应该对类别求和，只对图像取平均（reduction='batchmean'）。",
            ): tau**2 * divergence / 5,
            (
                "Only the teacher is softened: the student's logits are divided by tau, too.",
                "只软化了教师：学生的 logits 也要除以 tau。",
            ): tau**2 * sharp,
            (
                "This is tau, not its square.",
                "乘的是 tau，不是它的平方。",
            ): tau * divergence,
        },
        hint=(
            "Divide both by tau, log_softmax over the classes, p_t times (log p_t - log p_s).",
            "两者都除以 tau，沿类别做 log_softmax，再算 p_t 乘以 (log p_t - log p_s)。",
        ),
    )


def _hard() -> Iterator[ExerciseStep]:
    own, taught, teacher = (2 * torch.randn(6, 5) for _ in range(3))
    labels = (teacher.argmax(dim=1) + torch.tensor([0, 0, 1, 0, 2, 0])) % 5
    task = _task("hard")
    targets = task.truth.mix(labels, labels, torch.ones(6))
    losses = task.loss(DistilledOutput(own, taught), targets, teacher)
    answers, mean = teacher.argmax(dim=1), (own + taught) / 2

    def half(first: Tensor, second: Tensor, wanted: Tensor = answers) -> Tensor:
        return (F.cross_entropy(first, labels) + F.cross_entropy(second, wanted)) / 2

    yield ExerciseStep(
        "hard",
        (own, taught, labels, teacher),
        sum(losses.values()),
        {
            (
                "The heads are swapped: the class token learns the labels.",
                "两个头颠倒了：类别标记学真实标签。",
            ): half(taught, own),
            (
                "Both heads were averaged before the loss: that is for prediction; in training "
                "each has its own target.",
                "先取平均再算损失了：平均用于预测；训练时两个头各有自己的目标。",
            ): half(mean, mean),
            (
                "This learns the teacher's probabilities; hard is the class that it thinks most "
                "likely.",
                "这里学的是教师的概率；硬蒸馏学的是它认为最可能的类别。",
            ): (F.cross_entropy(own, labels) + F.cross_entropy(taught, teacher.softmax(1))) / 2,
            (
                "Both learn the labels: the teacher is not asked.",
                "两个头都在学真实标签：没有用到教师。",
            ): half(own, taught, labels),
            (
                "The sum of both; each counts a half (equation 3).",
                "两项直接相加了；每项各占一半（公式 3）。",
            ): 2 * half(own, taught),
        },
        hint=(
            "Half the cross-entropy of one head with the labels, half that of the other with "
            "teacher.argmax(1).",
            "一个头与真实标签的交叉熵取一半，另一个头与 teacher.argmax(1) 的交叉熵取一半。",
        ),
    )


def _hide() -> Iterator[ExerciseStep]:
    inside = {"patch": 2, "dim": 8, "depth": 1, "heads": 2, "mlp_dim": 8, "tokens": "none"}
    sizes: dict[str, Any] = {"image_size": 8, "channels": 1, "decoder_dim": 8, "decoder_heads": 2}
    model = create("mae-pretrain", encoder="vit", encoder_fields=inside, **sizes).eval()
    assert isinstance(model, MaskedAutoencoder)
    images, noise = torch.randn(2, 1, 8, 8), torch.rand(2, 16)
    patches, _ = model.core.embed(images)
    seen: dict[str, Tensor] = {}
    first = model.core.get_submodule("blocks.0")
    hook = first.register_forward_pre_hook(lambda module, given: seen.update(kept=given[0]))
    mask = model(images, noise).mask.flatten(1)
    hook.remove()
    kept, order = seen["kept"], noise.argsort(dim=1)
    shuffled = torch.ones(2, 16)
    shuffled[:, :4] = 0

    def chosen(places: Tensor) -> Tensor:
        return patches.take_along_dim(places[..., None], dim=1)

    yield ExerciseStep(
        "hide",
        (patches, noise, 4),
        (kept, mask),
        {
            (
                "The mask is the wrong way round: 1 is hidden.",
                "掩码反了：1 表示被遮住。",
            ): (kept, 1 - mask),
            (
                "The mask is in the shuffled order; its places are those of the image "
                "(argsort of the order undoes it).",
                "掩码还是打乱后的顺序；应该回到图像里的顺序（对排列再做一次 argsort）。",
            ): (kept, shuffled),
            (
                "The patches with the largest noise were kept.",
                "留下的是噪声最大的图块。",
            ): (
                chosen((-noise).argsort(dim=1)[:, :4]),
                (noise <= noise.median(1)[0][:, None]) * 1.0,
            ),
            (
                "The first image's choice was taken for all: each image has its own mask.",
                "所有图像都用了第一张的选择：每张图像有自己的掩码。",
            ): (chosen(order[:1, :4].expand(2, -1)), mask[:1].expand(2, -1)),
            (
                "The ranks of the patches were taken for their numbers: argsort once, not twice.",
                "把名次当成了编号：挑选可见图块时只做一次 argsort。",
            ): (chosen(order.argsort(dim=1)[:, :4]), mask),
        },
        hint=(
            "order = noise.argsort(1): its first entries are the visible patches; "
            "order.argsort(1) says where each patch stands in it.",
            "order = noise.argsort(1)，前几个就是可见图块；order.argsort(1) 是每个图块在其中的名次。",
        ),
    )


def _masked() -> Iterator[ExerciseStep]:
    patches, prediction = 2 + 3 * torch.randn(2, 16, 4), torch.randn(2, 16, 4)
    mask = torch.ones(2, 16)
    mask[0, :4], mask[1, 5:9] = 0, 0
    mean, variance = patches.mean(-1, keepdim=True), patches.var(-1, keepdim=True)
    target = (patches - mean) / (variance + 1e-6).sqrt()
    nothing = torch.zeros_like(mean)
    output = Masked(prediction, target, nothing, nothing + 1, mask.unflatten(1, (4, 4)))
    errors = (prediction - target).square().mean(-1)
    whole = (patches - patches.mean((1, 2), keepdim=True)) / patches.std((1, 2), keepdim=True)
    yield ExerciseStep(
        "masked_loss",
        (prediction, patches, mask),
        masked_loss(output).mean(),
        {
            (
                "All patches count; only hidden ones should.",
                "所有图块都计入了；只应计被遮住的。",
            ): errors.mean(),
            (
                "The visible patches count, the hidden ones do not: 1 is hidden.",
                "计的是可见的图块，不是被遮住的：1 表示被遮住。",
            ): (errors * (1 - mask)).sum() / (1 - mask).sum(),
            (
                "Divided by the number of all patches: divide by that of the hidden ones.",
                "除以了所有图块的个数：应该除以被遮住的个数。",
            ): (errors * mask).mean(),
            (
                "The pixels are compared as they are: normalise each patch first.",
                "直接比较了原始像素：先对每个图块归一化。",
            ): ((prediction - patches).square().mean(-1) * mask).sum() / mask.sum(),
            (
                "Normalised by the mean and std of the whole image: each patch has its own.",
                "用了整张图像的均值和标准差：每个图块用自己的。",
            ): ((prediction - whole).square().mean(-1) * mask).sum() / mask.sum(),
        },
        hint=(
            "Normalise over the last axis, mean of squares over it, then the mean over hidden "
            "patches.",
            "沿最后一维归一化，沿最后一维求平方的平均，再对被遮住的图块取平均。",
        ),
    )
