"""A vector for each of many images. What was computed is kept as it goes: an interrupted run that
is started again computes only what is missing, and images that have changed meanwhile."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from vitreous.config import choice
from vitreous.data.threads import in_threads
from vitreous.embed.embeddings import Embeddings
from vitreous.embed.images import Entry, Images, Stamp
from vitreous.embed.vector_files import About, PartFiles, Stored, check_out, read, write
from vitreous.engines.graph import GraphEngine
from vitreous.engines.world import ALONE, World
from vitreous.errors import ConfigError, DataError, VitreousError, advice
from vitreous.predict import POOLS, Predictor
from vitreous.progress import CountProgress, Log


def embed(
    predictor: Predictor,
    images: Images,
    out: Path | None = None,
    *,
    pool: str = "head",
    batch: int | None = None,
    readers: int = 2,
    on_bad: str = "error",
    log: Log = lambda text: None,
    progress: bool = True,
    world: World = ALONE,
) -> Embeddings | None:
    """Vectors of all images, in their order; with `out` also as a file. The processes of a `world`
    share the work; the first one has the result.

    If `out`, or what is left of an interrupted run beside it, has vectors of these images by the
    same model, they are not computed again. An image that cannot be used is left out with
    on_bad="skip"; else it is an error when all others are done.
    """
    pool, on_bad = choice("pool", pool, POOLS), choice("on_bad", on_bad, ("error", "skip"))
    if not len(images):
        raise DataError("there are no images to embed")
    about = About(predictor.exact().title, model_hash(predictor), pool, images.truth_kind)
    places = {entry.name: i for i, entry in enumerate(images.entries)}
    vectors = np.zeros((len(images), predictor.vector_length(pool)), np.float32)
    stamps = np.zeros((len(images), 2), np.int64)
    parts = None if out is None else PartFiles(out, about)

    def find_done() -> NDArray[np.bool_]:
        """Which vectors are there already."""
        done = np.zeros(len(images), np.bool_)
        if out is not None and parts is not None:
            check_out(out)
            for stored in _stored(out, parts, places, log):
                _take(stored, images, places, vectors, stamps, done)
            if kept := int(done.sum()):
                log(f"{out}: {kept:,} of {len(images):,} vectors are there already")
        return done

    done = world.lead(find_done)
    bad: list[VitreousError] = []

    def complain(error: VitreousError) -> None:
        bad.append(error)
        log(f"left out: {error}")

    missing = [entry for entry, there in zip(images.entries, done, strict=True) if not there]
    visible = progress and world.is_first
    with ExitStack() as at_end, CountProgress(len(missing), log, visible=visible) as shown:
        if parts is not None:  # however it ends, what was computed is kept
            at_end.callback(parts.flush)
        batch = predictor.batch_size(batch)
        work = partial(_vectors, predictor, images, batch=batch, pool=pool, readers=readers)
        for names, marks, found, wrong in world.share(missing, batch, work):
            for error in wrong:
                complain(error)
            if not names:
                continue
            rows = [places[name] for name in names]
            vectors[rows], done[rows], stamps[rows] = found, True, marks
            if parts is not None:
                parts.add(names, stamps[rows], found)
            shown.add(len(names))
    if not world.is_first:
        return None
    if bad and on_bad == "error":
        others = "; the vectors of the others are kept for the next run" if parts else ""
        raise DataError(
            f"{len(bad)} of {len(images)} images could not be used: see above{others}: repair or "
            f"remove them{advice(', or pass ', ' to leave them out', on_bad='skip')}"
        )
    if not done.any():
        raise DataError(f"none of the {len(images)} images could be used: see above")
    entries = [entry for entry, there in zip(images.entries, done, strict=True) if there]
    result = Embeddings(
        [entry.name for entry in entries],
        vectors if done.all() else vectors[done],
        stamps[done],
        [entry.label for entry in entries],
        [entry.split for entry in entries],
        about,
        Images(entries, images.source, images.max_pixels),
        predictor,
    )
    if out is not None and parts is not None:
        write(out, result)
        parts.remove()
    return result


def _vectors(
    predictor: Predictor, images: Images, entries: Iterable[Entry], **options: Any
) -> Iterator[tuple[list[str], list[Stamp], NDArray[np.float32], list[VitreousError]]]:
    """Names, stamps and vectors, a batch at a time, and why others of it have none."""
    wrong: list[VitreousError] = []
    for names, found in predictor.embed_each(entries, images.read, bad=wrong.append, **options):
        yield names, [images.stamps.pop(name) for name in names], found, [*wrong]
        wrong.clear()


def model_hash(predictor: Predictor) -> str:
    """Of everything that vectors depend on. Fields of the config that have their usual value are
    left out, so that a field that a later version adds changes nothing."""
    digest = hashlib.sha256()
    if predictor.engine.precision != "float32":
        digest.update(predictor.engine.precision.encode())
    exact = predictor.exact()  # of a run folder's engines, which are verified against it
    if isinstance(exact.engine, GraphEngine):
        files = [exact.engine.where, exact.engine.where.with_suffix(".bin")]
        for file in files:
            digest.update(file.read_bytes() if file.is_file() else b"")
        return digest.hexdigest()[:32]
    model = exact.model
    config = {
        each.name: value
        for each in fields(model.config)
        if (value := getattr(model.config, each.name))
        != (each.default if each.default is not MISSING else None)
    }
    facts = [type(model).__name__, config, vars(predictor.preprocess), predictor.task.windows]
    facts += [model.merge] if model.merge else []
    digest.update(json.dumps(facts, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]


def _stored(out: Path, parts: PartFiles, places: dict[str, int], log: Log) -> Iterator[Stored]:
    """What is there: the file, then what was computed after it."""
    if out.exists():
        stored = read(out)
        _check_model(out, stored.about, parts.about)
        others = sum(path not in places for path in stored.paths)
        if stored.paths and others == len(stored.paths):
            raise ConfigError(
                f"--out {out}: has the vectors of {others:,} other images, which would be lost: "
                "give another name, or remove it"
            )
        if others:
            log(f"{out}: {others:,} of its images are not among those given now: they are dropped")
        yield stored
    for stored in parts.read():
        _check_model(parts.folder, stored.about, parts.about)
        yield stored


def _check_model(path: Path, there: About, ours: About) -> None:
    if there.key != ours.key:
        what = (
            f"pool = {there.pool!r}, not {ours.pool!r}"
            if there.model_hash == ours.model_hash
            else f"another model, {there.model} ({there.model_hash}), not {ours.model} "
            f"({ours.model_hash})"
        )
        raise ConfigError(
            f"{path}: its vectors were made with {what}: give another --out, or remove it"
        )


def _take(
    stored: Stored,
    images: Images,
    places: dict[str, int],
    vectors: NDArray[np.float32],
    stamps: NDArray[np.int64],
    done: NDArray[np.bool_],
) -> None:
    """Vectors of images that are still what they were."""
    rows = [(i, places[path]) for i, path in enumerate(stored.paths) if path in places]

    def same(row: tuple[int, int]) -> bool:
        try:
            return images.stamp(images.entries[row[1]]) == tuple(stored.stamps[row[0]].tolist())
        except VitreousError:  # it is reported when it is read
            return False

    there = in_threads(same, rows, "looking for changed images")
    for (i, place), kept in zip(rows, there, strict=True):
        if kept:
            vectors[place], stamps[place], done[place] = stored.vectors[i], stored.stamps[i], True
