"""Make a run folder of weights from elsewhere, which every command takes like a trained one. Class
names and preprocessing come from SRC where it states them, else from the options. The folder's
model is built again and compared on photographs before it is kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from vitreous import api
from vitreous.cli.options import InputOptions, WeightOptions, WordOptions, options_besides
from vitreous.cli.printing import print_json
from vitreous.tasks import TASKS
from vitreous.terminal import print
from vitreous.train.recipe import Flag, option
from vitreous.wording import counted


@dataclass(frozen=True)
class PreprocessOptions:
    """How images are brought to the model."""

    resize: Annotated[Literal["shorter", "square"] | None, option(None, "stated by SRC")] = None
    """Resize the shorter side and crop the centre, or resize both sides."""
    crop: Annotated[float | None, option("F", "stated by SRC")] = None
    """With --resize shorter: the part of the resized shorter side that the model sees."""
    interpolation: Annotated[
        Literal["bilinear", "bicubic", "nearest"] | None, option(None, "stated by SRC")
    ] = None
    """Interpolation for resizing images."""
    mean: Annotated[tuple[float, ...], option("F ...", "stated by SRC")] = ()
    """Mean of each channel, in the range 0 to 1, for normalisation; one number is for all."""
    std: Annotated[tuple[float, ...], option("F ...", "stated by SRC")] = ()
    """Standard deviation of each channel, in the same range; one number is for all."""


@dataclass(frozen=True)
class FoldedWords(WordOptions):
    """Classes by words, folded into a model that was trained with texts (SRC may be a run
    folder)."""

    classes: Annotated[tuple[str, ...] | None, option("WORDS...", "the model's own")] = None
    """Words for the classes ("a cat" "a dog"), or a .txt file with a class per line or a .json
    file: their text vectors become the head of an ordinary classifier. A number: how many classes
    the head in SRC has."""


@dataclass(frozen=True)
class ImportArguments:
    source: Annotated[tyro.conf.Positional[str], option("SRC")]
    """Weights to read: a file, a folder of transformers or timm, hf:OWNER/NAME[@REVISION], or a
    name from the catalog."""
    out: Annotated[Path | None, option("RUN", "runs/NAME")] = None
    """Run folder to write."""
    labels: Annotated[str | None, option("LABELS", "stated by SRC")] = None
    """Names of the classes: imagenet-1k, coco-91, numbers, or a file with one per line."""
    from_format: Annotated[str | None, option("FORMAT", "recognised", name="from")] = None
    """Format of SRC ('vitreous convert --help' lists them), or a .toml file with your own rules."""
    model: Annotated[str | None, option("MODEL", "stated by SRC, or seen in its tensors")] = None
    """Name of the model."""
    task: Annotated[str | None, option("{" + ",".join(TASKS) + "}", "by the model")] = None
    """What the model predicts, if a model like it is used for several tasks."""
    force: Flag = False
    """Replace weights in RUN that 'vitreous import' did not write."""
    json: Flag = False
    """Print one JSON object."""
    preprocess: Annotated[PreprocessOptions, option(name="preprocessing")] = field(
        default_factory=PreprocessOptions
    )
    weights: Annotated[WeightOptions, option(name="weight")] = field(default_factory=WeightOptions)
    options: Annotated[InputOptions, option(name="model")] = field(default_factory=InputOptions)
    words: FoldedWords = field(default_factory=FoldedWords)


def run(arguments: ImportArguments) -> None:
    words, changes = arguments.words.given(), arguments.options.changes()
    if words["classes"] is not None and len(words["classes"]) == 1:
        (only,) = words["classes"]
        if only.isdecimal():
            changes["classes"], words = int(only), {**words, "classes": None}
    done = api.import_run(
        **options_besides(arguments, "preprocess", "weights", "options", "words", "json"),
        **vars(arguments.preprocess),
        **arguments.weights.given(),
        **words,
        changes=changes,
    )
    config = done.config
    if arguments.json:
        report = {"import": asdict(done.report), "notes": done.notes}
        print_json({"run": str(done.path), **config.to_dict(), **report}, indent=2)
        return
    print(done.report)
    classes = f", {counted(len(config.labels), 'class')}" if len(config.labels) else ""
    print(f"model    {config.model}: {config.task}{classes}")
    print(f"images   {config.preprocess.described()}")
    from vitreous.weights.reading import assumptions  # needs torch, which --help does not

    for assumed in assumptions(done.assumed):
        print(f"assumed  {assumed}: the tensors do not show it; --set changes it")
    for note in done.notes:
        print(f"note     {note}")
    print("checked  the written run, read back, gives the same bits for photographs as before")
    if done.assumed:
        print("         (not what was assumed: only images with known labels can show that)")
    print(f"run      {done.path}")
