"""The same numbers for TensorBoard, for those who have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vitreous.errors import ConfigError
from vitreous.train.events import Event


@contextmanager
def board(folder: Path, step: int) -> Iterator[Callable[[Event], None]]:
    """Writes what it is shown; what was written behind `step` by a run that died is dropped."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "tensorboard = true needs a package: pip install 'vitreous[tensorboard]'"
        ) from error
    with SummaryWriter(str(folder), purge_step=step + 1) as writer:

        def see(event: Event) -> None:
            writer.add_scalar("train/loss", event.loss, event.step)
            writer.add_scalar("train/lr", event.lr, event.step)
            writer.add_scalar("train/images_per_second", event.images_per_second, event.step)
            for name, value in (event.evaluated or {}).items():
                if isinstance(value, int | float):
                    writer.add_scalar(f"val/{name}", value, event.step)

        yield see
