"""Vectors of images, and what they tell: the nearest images, near-duplicates, labels that are
probably wrong, k-NN accuracy, and a map of all images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from vitreous import api
from vitreous.cli.options import EngineOptions, ImagePaths
from vitreous.cli.printing import TextTable, print_json
from vitreous.config import positive
from vitreous.errors import ConfigError, DataError
from vitreous.pages.page_file import check_page_name
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option
from vitreous.wording import counted

if TYPE_CHECKING:
    from vitreous.embed.embeddings import Embeddings
    from vitreous.embed.images import Images

COMPUTED = (
    *("run", "images", "out", "pool", "batch", "readers", "on_bad"),
    *("path_column", "label_column", "split_column"),
)
"""Arguments of `embed`; the others say what to do with the vectors."""
TOP = {"near": 10, "duplicates": 50, "suspects": 50}


@dataclass(frozen=True)
class EmbedArguments:
    run: tyro.conf.Positional[str]
    """Run folder of a trained or imported model, hf:OWNER/NAME, or a name from the catalog."""
    images: ImagePaths
    """Files, folders, patterns like 'photos/*.jpg', or - for a list of files on standard input; or
    labelled data: a folder of class folders, a table, digits …"""
    out: Annotated[Path | None, option("FILE", "none")] = None
    """File for the vectors, .npz or .parquet. If it is there, or an interrupted run has left a part
    of it, only what is missing is computed."""
    pool: Annotated[Literal["head", "class", "mean", "class+mean", "pixels"], option()] = "head"
    """Of what each vector is made: what the head sees, the class token, the mean of the patches,
    class token and mean, or the pixels themselves (to compare with)."""
    near: Annotated[str | None, option("IMAGE", "none")] = None
    """Show the images nearest to this one."""
    duplicates: Flag = False
    """Show images that are nearly the same, those in different splits first."""
    threshold: Annotated[float, option("T")] = 0.9
    """Cosine similarity from which two images count as duplicates."""
    suspects: Flag = False
    """Show labels that disagree with the neighbours, the likely errors first."""
    knn: Flag = False
    """Measure k-NN accuracy: test, else val, is classified by its neighbours in train."""
    k: Annotated[int, option("N")] = 20
    """Number of neighbours, for --knn and --suspects."""
    map: Annotated[Path | None, option("FILE.html", "none")] = None
    """Write a page with all images on a plane, similar ones near each other."""
    layout: Literal["auto", "t-sne", "pca"] = "auto"
    """How --map places the images; auto is t-sne for up to 100,000, pca for more."""
    page: Annotated[Path | None, option("FILE.html", "none")] = None
    """Write a page with the pictures of near images, duplicates or suspects."""
    top: Annotated[int | None, option("N", "10 near images, 50 pairs or suspects")] = None
    """Number of images or pairs to show."""
    split: Annotated[str | None, option("{train,val,test}", "all; for --knn test, else val")] = None
    """Split of labelled data to look at; with --knn, the one that is classified: train is embedded
    too, and --out keeps both."""
    path_column: Annotated[str | None, option("NAME", "path")] = None
    """Column of a table with the images' paths."""
    label_column: Annotated[str | None, option("NAME", "label")] = None
    """Column of a table with the images' classes or labels."""
    split_column: Annotated[str | None, option("NAME", "split")] = None
    """Column of a table with the images' splits."""
    batch: Annotated[int | None, option("N", "32, or fewer if images are not cropped")] = None
    """Images per forward pass."""
    readers: Annotated[int, option("N")] = 2
    """Threads that read images."""
    on_bad: Literal["error", "skip"] = "error"
    """Fail when all others are done if an image cannot be read, or leave such images out."""
    json: Flag = False
    """Print one JSON object."""
    inference: EngineOptions = field(default_factory=EngineOptions)


def run(arguments: EmbedArguments) -> None:
    from vitreous.train.distributed import sharing

    positive(arguments, "k", *(["top"] if arguments.top is not None else []))
    asked = [name for name in TOP if getattr(arguments, name)]
    if not (asked or arguments.out or arguments.knn or arguments.map):
        raise ConfigError(
            "what should be done with the vectors? --out FILE keeps them; --near IMAGE, "
            "--duplicates, --suspects, --knn and --map FILE.html look at them"
        )
    for page in filter(None, (arguments.page, arguments.map)):
        check_page_name(page)
    if arguments.page and not asked:
        raise ConfigError("--page shows what --near, --duplicates or --suspects found: add one")
    with sharing() as world:
        found = api.embed(
            **{name: getattr(arguments, name) for name in COMPUTED},
            split=_splits(arguments),
            check=lambda images: _check(images, arguments),
            world=world,
            **arguments.inference.given(),
        )
    if not world.is_first:
        return
    results = _results(found, arguments)
    count, length = found.vectors.shape
    facts = {
        "model": found.about.model,
        "model_hash": found.about.model_hash,
        "pool": found.about.pool,
        "images": count,
        "dim": length,
    }
    written = _write(_asked(found, arguments), arguments, results)
    if arguments.json:
        plain = {
            name: [each.to_dict() for each in value] if isinstance(value, list) else value
            for name, value in results.items()
        }
        print_json({**facts, **plain, **written})
        return
    print(
        f"{counted(count, 'vector')} of {counted(length, 'value')} by {facts['model']} "
        f"(pool {facts['pool']}, not normalised; hash {facts['model_hash']})"
    )
    for name, value in results.items():
        PRINT[name](value, arguments)
    for name, value in written.items():
        print(f"{name:<7} {value}")


def _splits(arguments: EmbedArguments) -> str | tuple[str, ...] | None:
    """What is embedded: k-NN also needs the images that vote."""
    if not arguments.knn or arguments.split is None:
        return arguments.split
    if arguments.split == "train":
        raise ConfigError("--knn classifies images of val or test by those of train: --split test")
    return ("train", arguments.split)


def _asked(found: Embeddings, arguments: EmbedArguments) -> Embeddings:
    """What all questions but k-NN are about: the split that was named."""
    return found.only(arguments.split) if arguments.knn and arguments.split else found


def _check(images: Images, arguments: EmbedArguments) -> None:
    """What cannot be answered is known before hours of work."""
    from vitreous.embed.embeddings import check_classes, knn_split

    near = arguments.near
    names = {e.name for e in images.entries if arguments.split in (None, e.split)}
    if near and not os.path.exists(near) and near not in names:
        raise DataError(f"--near {near}: there is no such file, nor an image of this name")
    if arguments.suspects or arguments.knn:
        check_classes(images.truth_kind)
    if arguments.knn:
        knn_split((entry.split for entry in images.entries), arguments.split)


def _results(found: Embeddings, arguments: EmbedArguments) -> dict[str, Any]:
    """What was asked, by name."""
    top = {name: arguments.top or usual for name, usual in TOP.items()}
    results: dict[str, Any] = {}
    asked = _asked(found, arguments)
    if arguments.near is not None:
        results["near"] = asked.near(arguments.near, top["near"])
    if arguments.duplicates:
        pairs = asked.duplicates(arguments.threshold)
        results["duplicate_pairs"] = len(pairs)
        results["duplicates"] = pairs[: top["duplicates"]]
    if arguments.suspects:
        doubtful = asked.suspects(arguments.k)
        results["suspect_labels"] = len(doubtful)
        results["suspects"] = doubtful[: top["suspects"]]
    if arguments.knn:
        results["knn"] = found.knn(arguments.k, arguments.split)
    return results


def _write(found: Embeddings, arguments: EmbedArguments, results: dict[str, Any]) -> dict[str, str]:
    """Files and pages, by what they are."""
    written = {"out": str(arguments.out)} if arguments.out else {}
    if arguments.page is not None:
        near = (arguments.near, results["near"]) if "near" in results else None
        lists = {name: results.get(name) for name in ("duplicates", "suspects")}
        written["page"] = str(api.write_sheet(found, arguments.page, near=near, **lists))
    if arguments.map is not None:
        path, layout = api.write_map(found, arguments.map, arguments.layout)
        written |= {"map": str(path), "layout": layout}
    return written


def _print_near(value: Sequence[Any], arguments: EmbedArguments) -> None:
    print(f"\nnearest to {arguments.near}")
    table = TextTable("similarity>", "image", "label", "split")
    for each in value:
        table.row(f"{each.similarity:.4f}", each.path, each.label, each.split)
    table.print()


def _print_duplicates(value: Sequence[Any], arguments: EmbedArguments) -> None:
    table = TextTable("similarity>", "splits", "image", "nearly the same", "labels")
    for each in value:
        labels = dict.fromkeys(filter(None, each.labels))
        table.row(
            "identical" if each.identical else f"{each.similarity:.4f}",
            "-".join(dict.fromkeys(filter(None, each.splits))),
            *each.paths,
            " / ".join(labels),
        )
    if value:
        table.print()


def _print_pair_count(count: int, arguments: EmbedArguments) -> None:
    print(f"\n{counted(count, 'pair')} with a similarity of at least {arguments.threshold:g}")
    if count > 10_000:
        print(
            "so many pairs are hardly duplicates: to this model, images of a class look alike. "
            "Try a higher --threshold, a model that was pre-trained on many images, or --pool "
            "pixels"
        )


def _print_suspects(value: Sequence[Any], arguments: EmbedArguments) -> None:
    table = TextTable("image", "split", "label", "agreement>", "suggested", "support>")
    for each in value:
        numbers = f"{each.agreement:.2f}", f"{each.support:.2f}"
        table.row(each.path, each.split, each.label, numbers[0], each.suggested, numbers[1])
    if value:
        table.print()


def _print_knn(value: dict[str, Any], arguments: EmbedArguments) -> None:
    print(
        f"\nk-NN accuracy on {value['split']} ({counted(value['samples'], 'image')}; "
        f"k = {value['k']}, {counted(value['train_samples'], 'image')} of train)"
    )
    print(f"  {'weighted votes':<19} {value['knn_accuracy']:.4f}")
    print(f"  {'plain votes':<19} {value['knn_accuracy_plain']:.4f}")
    print(f"  {'most frequent class':<19} {value['majority_accuracy']:.4f}")


PRINT: dict[str, Any] = {
    "near": _print_near,
    "duplicate_pairs": _print_pair_count,
    "duplicates": _print_duplicates,
    "suspect_labels": lambda count, arguments: print(
        f"\n{counted(count, 'label')} with neighbours that disagree"
    ),
    "suspects": _print_suspects,
    "knn": _print_knn,
}
