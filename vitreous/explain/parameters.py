"""What the weights themselves show, without any image."""

from __future__ import annotations

import torch
from torch import Tensor

from vitreous.models.model import Model
from vitreous.weights.families import state_dict_of


@torch.no_grad()
def position_similarity(model: Model) -> Tensor | None:
    """(gh, gw, gh, gw): how alike the places of two patches are to the model (ViT, figure 7).

    Cosines between position embeddings, for relative positions the mean bias that attention gets,
    for rotary ones how alike they turn; None where a model has none of these (CPVT takes position
    from the image itself, Swin has a bias in each window).
    """
    model = model.core
    config = model.config
    position = getattr(model, "position", None)
    if position is None:
        return None
    grid: tuple[int, int] = config.grid
    n, p = grid[0] * grid[1], config.prefix
    biases = [position.score_bias(i, p, grid) for i in range(model.depth)]
    if biases[0] is not None:
        similar = torch.cat(biases).mean(dim=(0, 1))[p:, p:]
    else:
        device = next(model.parameters()).device
        table = position(torch.zeros(1, p + n, config.dim, device=device), p, grid)[0, p:]
        if not table.any():
            rotate = position.rotation(0, grid, device)
            if rotate is None:
                return None
            table = rotate(torch.ones(1, 1, n, config.head_width, device=device))[0, 0]
        table = torch.nn.functional.normalize(table, dim=1)
        similar = table @ table.T
    return similar.reshape(*grid, *grid).cpu()


@torch.no_grad()
def filters(model: Model, count: int = 28) -> Tensor:
    """(count, c, h, w): principal components of the first filters (ViT, figure 7 left).

    Of the patch embedding, or of the first convolution where there is one. Strongest first.
    """
    weight = model.get_parameter(state_dict_of(model).input_weight(model)).detach().float().cpu()
    flat = weight.flatten(1)
    components = torch.linalg.svd(flat - flat.mean(dim=0), full_matrices=False).Vh
    return components[:count].unflatten(1, weight.shape[1:])
