"""Look inside a trained model: the figures of the papers, for your model and your images."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from vitreous import api
from vitreous.cli.options import ImagePaths, ReadingOptions
from vitreous.cli.printing import Complaints, TextTable, print_json
from vitreous.errors import DataError
from vitreous.terminal import print
from vitreous.train.recipe import Flag, Repeated, option


@dataclass(frozen=True)
class ExplainArguments:
    run: tyro.conf.Positional[Path]
    """Run folder of a trained or imported model, hf:OWNER/NAME, or a name from the catalog."""
    images: ImagePaths
    """Files, folders, patterns like 'photos/*.jpg', or - for a list of files on standard input."""
    out: Annotated[Path | None, option("FOLDER", "RUN/explain")] = None
    """Folder to write to."""
    classes: Annotated[Repeated, option("CLASS", "the three most likely; all objects")] = ()
    """Class to draw a map for, or whose detected objects to show; may be repeated."""
    pixel: Annotated[tuple[int, int] | None, option("Y X", "the centre")] = None
    """Row and column, from 0, of the pixel whose class and attention are explained."""
    trust: Flag = False
    """Measure which kind of map may be trusted, by deletion and insertion over all images, instead
    of drawing maps."""
    no_page: Flag = False
    """Do not write page.html, in which the model itself runs."""
    json: Flag = False
    """Print one line of JSON per image, with all maps, instead of writing files."""
    inference: ReadingOptions = field(default_factory=ReadingOptions)


def run(arguments: ExplainArguments) -> None:
    from vitreous.data.image_paths import paths_of

    predictor = api.load(arguments.run, **arguments.inference.given())
    classes, pixel = arguments.classes or 3, arguments.pixel
    bad = Complaints()
    paths = list(paths_of(arguments.images, bad))
    if arguments.trust:
        found = api.score_maps(predictor, paths, bad)
        print_json(found) if arguments.json else _print_scores(found)
    elif arguments.json:
        for path in paths:
            try:
                print_json(predictor.explain(path, classes, pixel=pixel).to_dict())
            except DataError as error:  # one image that cannot be used does not lose the others
                bad(error)
    else:
        out = arguments.out or api.explanation_folder(arguments.run)
        for written in api.write_explanations(
            predictor, paths, out, classes, pixel, bad, page=not arguments.no_page
        ):
            print(written, flush=True)
    bad.raise_if_any(len(paths))


def _print_scores(found: dict[str, dict[str, Any]]) -> None:
    print(
        "area under the score of the predicted class, with 95 % interval; deletion: lower is better"
    )
    table = TextTable("map", "deletion>", "insertion>")
    for kind, each in found.items():
        cells = []
        for name in ("deletion", "insertion"):
            low, high = each[f"{name}_interval"]
            cells.append(f"{each[name]:.3f} ({low:.3f} to {high:.3f})")
        table.row(kind, *cells)
    table.print()
