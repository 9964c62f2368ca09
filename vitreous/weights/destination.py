"""Where converted weights go: written aside, verified by the caller, then moved into place.

A safetensors file that `convert` wrote before may be replaced; anything else only if the user
insists, and the source of the conversion never.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import safetensors

from vitreous.atomic_write import making_folder, renaming_files
from vitreous.errors import CheckpointError, ConfigError, advice
from vitreous.weights.io.files import FOLDER_FILES, SHARD_INDEX

CONFIG_FILE, WEIGHTS_FILE = "config.json", "model.safetensors"
METADATA = {"format": "pt", "written_by": "vitreous convert"}
"""Of our safetensors files in other libraries' formats."""


def check_target(target: Path, source: Path, force: bool = False) -> None:
    """Refuse to replace the source, or what we did not write unless `force`."""
    folder = target if _is_folder(target) else target.parent
    files = [folder / CONFIG_FILE, folder / WEIGHTS_FILE] if _is_folder(target) else [target]
    described = config_of(source)
    if any(_is_part_of(file, source) or _same(file, described) for file in files):
        raise ConfigError(
            f"{target}: this would replace what is converted, {source}: choose another DST"
        )
    if force:
        return
    if target.name in FOLDER_FILES and (folder / CONFIG_FILE).exists():
        raise ConfigError(
            f"{target}: these would become the weights of {folder}, which has a {CONFIG_FILE} for "
            f"others: choose another DST{advice(', or pass ', force=True)}"
        )
    # The config of a folder is ours if its weights are, and if they are not those of a run.
    ours = is_ours(files[-1]) and not (_is_folder(target) and _metadata(files[-1]) != METADATA)
    existing = [file for file in files if os.path.lexists(file)]
    if existing and not ours:
        known = existing[0].suffix not in (".npz", ".pth", ".pdparams")
        whose = ", and 'vitreous convert' did not write it" if known else ""
        raise ConfigError(
            f"{existing[0]} exists{whose}: choose another DST"
            f"{advice(', or pass ', ' to replace it', force=True)}"
        )


@contextmanager
def written_aside(target: Path, *, folder: bool | None = None) -> Iterator[Path]:
    """A temporary folder, whose files are moved to their places if nothing is raised.

    They are those of the folder `target`, or the file `target` itself; without a suffix it is a
    folder, unless the caller knows.
    """
    place = target if (_is_folder(target) if folder is None else folder) else target.parent
    if place != target and not place.is_dir():
        raise CheckpointError(f"{target}: the folder {place} does not exist")
    # Weights before the config that describes them: without it they are not used.
    with (
        making_folder(place),
        renaming_files(place, target, lambda file: file.name == CONFIG_FILE) as aside,
    ):
        yield aside


def is_ours(path: Path) -> bool:
    """Whether `convert` wrote this safetensors file, or in our own format anything of Vitreous. Of
    other files nobody can tell."""
    return _metadata(path) == METADATA or _metadata(path).get("format") == "vitreous"


def _metadata(path: Path) -> dict[str, str]:
    try:
        with safetensors.safe_open(path, framework="pt", device="cpu") as file:
            return dict(file.metadata() or {})
    except (OSError, safetensors.SafetensorError):
        return {}


def _is_folder(target: Path) -> bool:
    return not target.suffix


def config_of(source: Path) -> Path:
    """Where the config.json is that describes these weights."""
    folder = source.parent
    if folder.parent.name == "checkpoints":  # of a run
        folder = folder.parent.parent
    return folder / CONFIG_FILE


def _is_part_of(file: Path, source: Path) -> bool:
    """Whether the file is the source, or one of those that a source's index lists."""
    sharded = source.name == SHARD_INDEX and file.resolve().parent == source.resolve().parent
    return _same(file, source) or (sharded and file.exists())


def _same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
