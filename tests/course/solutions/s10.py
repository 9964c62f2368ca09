"""Exercise 10, solved; and what readers usually get wrong."""

import torch
import torch.nn.functional as F


def learning_rates(depth, lr, decay):
    return lr * decay ** torch.arange(depth + 1.0, -1, -1)


def soft(student, teacher, tau):
    ours, wanted = ((each / tau).log_softmax(dim=1) for each in (student, teacher))
    return tau**2 * (wanted.exp() * (wanted - ours)).sum(dim=1).mean()


def hard(own, taught, labels, teacher):
    answers = teacher.argmax(dim=1)
    return (F.cross_entropy(own, labels) + F.cross_entropy(taught, answers)) / 2


def hide(patches, noise, visible):
    order = noise.argsort(dim=1)
    kept = patches.take_along_dim(order[:, :visible, None], dim=1)
    return kept, (order.argsort(dim=1) >= visible).float()


def masked_loss(prediction, patches, mask):
    mean, variance = patches.mean(-1, keepdim=True), patches.var(-1, keepdim=True)
    target = (patches - mean) / (variance + 1e-6).sqrt()
    return ((prediction - target).square().mean(-1) * mask).sum() / mask.sum()


def teacher_not_softened_alike(student, teacher, tau):
    wanted = (teacher / tau).softmax(dim=1)
    return tau**2 * (wanted * (wanted.log() - student.log_softmax(dim=1))).sum(dim=1).mean()


def in_shuffled_order(patches, noise, visible):
    mask = torch.ones(noise.shape)
    mask[:, :visible] = 0
    return hide(patches, noise, visible)[0], mask


def by_rank(patches, noise, visible):
    ranks = noise.argsort(dim=1).argsort(dim=1)
    kept = patches.take_along_dim(ranks[:, :visible, None], dim=1)
    return kept, hide(patches, noise, visible)[1]


WRONG = {
    "learning_rates": {
        "turned round": lambda depth, lr, decay: learning_rates(depth, lr, decay).flip(0),
        "keeps lr": lambda depth, lr, decay: learning_rates(depth, lr * decay, decay),
        "same factor": lambda depth, lr, decay: lr * torch.arange(1, depth + 3.0) / (depth + 2),
    },
    "soft": {
        "tau² is missing": lambda student, teacher, tau: soft(student, teacher, tau) / tau**2,
        "swapped": lambda student, teacher, tau: soft(teacher, student, tau),
        "batchmean": lambda student, teacher, tau: soft(student, teacher, tau) / student.shape[1],
        "Only the teacher is softened": teacher_not_softened_alike,
    },
    "hard": {
        "heads are swapped": lambda own, taught, labels, teacher: hard(
            taught, own, labels, teacher
        ),
        "averaged before the loss": lambda own, taught, labels, teacher: hard(
            (own + taught) / 2, (own + taught) / 2, labels, teacher
        ),
        "teacher's probabilities": lambda own, taught, labels, teacher: (
            (F.cross_entropy(own, labels) + F.cross_entropy(taught, teacher.softmax(dim=1))) / 2
        ),
        "counts a half": lambda own, taught, labels, teacher: (
            2 * hard(own, taught, labels, teacher)
        ),
    },
    "hide": {
        "wrong way round": lambda patches, noise, visible: (
            hide(patches, noise, visible)[0],
            1 - hide(patches, noise, visible)[1],
        ),
        "shuffled order": in_shuffled_order,
        "argsort once": by_rank,
    },
    "masked_loss": {
        "All patches count": lambda prediction, patches, mask: masked_loss(
            prediction, patches, torch.ones_like(mask)
        ),
        "1 is hidden": lambda prediction, patches, mask: masked_loss(prediction, patches, 1 - mask),
        "compared as they are": lambda prediction, patches, mask: (
            ((prediction - patches).square().mean(-1) * mask).sum() / mask.sum()
        ),
    },
}
