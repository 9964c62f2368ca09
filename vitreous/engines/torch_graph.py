"""A graph that torch.export wrote, read as data and computed operator by operator.

`torch.export.load` is for files that one trusts: it unpickles some of their parts, loads compiled
libraries, evaluates the expressions of shapes and guards, and makes Python source of names. Two
threads cannot use it at once, either. Files come from anywhere. So nothing of them is unpickled,
evaluated or compiled here: weights are bytes, the graph is JSON, and it may call the tensor
functions of `OPERATORS` alone, each of which computes values from values.
"""

from __future__ import annotations

import json
import math
import operator
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vitreous.errors import ConfigError
from vitreous.weights.io.readers import read_bytes

NAMES = """
    __and__ __or__ __xor__ _assert_tensor_metadata _softmax _to_copy abs acos add add_ addmm alias
    all amax amin any arange argmax argmin argsort asin atan atan2 avg_pool1d avg_pool2d baddbmm
    batch_norm bitwise_and bitwise_not bitwise_or bitwise_xor bmm broadcast_to cat ceil chunk clamp
    clamp_max clamp_min clone concat constant_pad_nd contiguous conv1d conv2d convolution copy cos
    cosh cumsum detach detach_ diagonal div dropout einsum elu embedding eq erf exp expand expand_as
    expm1 fill flatten flip floor floor_divide fmod full full_like gather ge gelu glu
    grid_sampler grid_sampler_2d group_norm gt hardsigmoid hardswish hardtanh index index_select
    instance_norm isfinite isinf isnan layer_norm le leaky_relu lift_fresh_copy linalg_vector_norm
    linear linspace log log1p log2 log_softmax logical_and logical_not logical_or logical_xor logit
    logsumexp lt mT masked_fill matmul max max_pool2d maximum mean meshgrid min minimum mish mm
    movedim mul narrow native_batch_norm native_dropout native_group_norm native_layer_norm ne neg
    new_full new_ones new_zeros nonzero norm ones ones_like outer pad permute pixel_shuffle
    pixel_unshuffle pow prod promote_types reciprocal reflection_pad2d relu relu_ remainder repeat
    repeat_interleave replication_pad2d reshape rms_norm roll round rsqrt rsub scalar_tensor
    scaled_dot_product_attention scatter scatter_add select sigmoid sign silu sin sinh slice
    softmax softplus sort split split_with_sizes sqrt squeeze stack std sub sum sym_numel sym_size
    t take_along_dim tan tanh tile to topk transpose tril triu true_divide trunc type_as unbind
    unflatten unfold unsqueeze unsqueeze_ upsample_bicubic2d upsample_bilinear2d upsample_nearest2d
    var view view_as where zeros zeros_like
"""
OPERATORS = frozenset(NAMES.split())
"""The functions of ATen that a graph may call: what exports of ours use, and other functions from
tensors to tensors. None reads or writes a file, a device or memory that is not its inputs'."""
ARITHMETIC = """add sub mul floordiv truediv mod neg
    eq ne lt le gt ge"""
NUMBERS: dict[str, Callable[..., Any]] = {
    **{f"_operator.{name}": getattr(operator, name) for name in ARITHMETIC.split()},
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "torch.sym_max": max,
    "torch.sym_min": min,
    "torch.sym_not": operator.not_,
    "torch.sym_float": float,
    "torch.sym_int": int,
}
"""What it may do with lengths."""
DTYPES = {
    1: torch.uint8,
    2: torch.int8,
    3: torch.int16,
    4: torch.int32,
    5: torch.int64,
    6: torch.float16,
    7: torch.float32,
    8: torch.float64,
    12: torch.bool,
    13: torch.bfloat16,
}
MEMORY_FORMATS = {1: torch.contiguous_format, 2: torch.channels_last, 4: torch.preserve_format}
STRIDED = 7
SCHEMA = 8
"""The format of the JSON, of torch 2.10 and later."""
PROGRAM = "models/model.json"
PAYLOADS = {
    "data/weights/": "data/weights/model_weights_config.json",
    "data/constants/": "data/constants/model_constants_config.json",
}
ENTRIES = re.compile(
    r"archive_format|archive_version|byteorder|version|\.data/\w+|models/model\.json|"
    r"data/(weights/model_weights|constants/model_constants)_config\.json|"
    r"data/weights/weight_\d+|data/constants/tensor_\d+|data/sample_inputs/model\.pt|"
    r"extra/[\w.-]+"
)
"""What an archive has. The sample inputs are a pickle, and nobody reads them."""
LONGEST_JSON = 256 << 20

Shape = tuple[int | None, ...]


class Slot(NamedTuple):
    """Where a value is while a graph is computed."""

    number: int


class Step(NamedTuple):
    call: Callable[..., Any]
    args: list[Any]
    kwargs: dict[str, Any]
    outputs: list[Any]
    """Slots, in the nesting of what the call gives; empty if that is not used."""
    done_with: list[int]
    """The slots that nobody reads after this step."""


@dataclass(frozen=True)
class TorchGraph:
    """A graph from images to outputs."""

    values: list[Tensor | None]
    """The weights in their slots."""
    steps: list[Step]
    images: int
    outputs: list[Slot]
    input_shape: Shape
    output_shapes: list[Shape]

    def __call__(self, images: Tensor) -> list[Tensor]:
        values: list[Any] = self.values.copy()
        values[self.images] = images
        for step in self.steps:
            kwargs = {name: _filled(each, values) for name, each in step.kwargs.items()}
            found = step.call(*_filled(step.args, values), **kwargs)
            if step.outputs:
                _store(found, step.outputs, values)
            for number in step.done_with:
                values[number] = None
        return [values[slot.number] for slot in self.outputs]


def _filled(given: Any, values: list[Any]) -> Any:
    if type(given) is Slot:
        return values[given.number]
    return [_filled(each, values) for each in given] if type(given) is list else given


def _store(found: Any, slots: list[Any], values: list[Any]) -> None:
    for each, slot in zip(found if len(slots) > 1 else [found], slots, strict=True):
        if type(slot) is Slot:
            values[slot.number] = each
        elif slot is not None:
            for part, inner in zip(each, slot, strict=True):
                values[inner.number] = part


def read_torch_graph(path: Path) -> TorchGraph:
    """The graph of a .pt2 file; everything that it says is checked, and nothing of it is run."""
    with zipfile.ZipFile(path) as archive:
        entries = entries_of(archive, path)
        program = _json(archive, entries[PROGRAM])
        weights: dict[str, Tensor] = {}
        for folder, config in PAYLOADS.items():
            weights |= _tensors(archive, entries, folder, config)
    major = program["schema_version"]["major"]
    if major != SCHEMA:
        raise ConfigError(
            f"{path} was written by another version of torch (schema {major}, not {SCHEMA}): "
            "export it again"
        )
    return _GraphReader(path, program["graph_module"], weights).graph()


def entries_of(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """The parts of an archive by name, without the folder that all of them are in; there is nothing
    in it but what a graph and its weights need."""
    entries: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name = info.filename.partition("/")[2]
        if not ENTRIES.fullmatch(name):
            raise ConfigError(
                f"{path} holds {info.filename[:100]!r}, which no export of Vitreous has: it is "
                "not opened"
            )
        if name in entries:
            raise ConfigError(f"{path} holds {info.filename[:100]!r} twice: it is not opened")
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise ConfigError(f"{path}: {info.filename[:100]!r} is compressed: it is not opened")
        entries[name] = info
    if sum(info.file_size for info in entries.values()) > path.stat().st_size:
        raise ConfigError(f"{path}: its parts overlap: it is not opened")
    return entries


def _json(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    if info.file_size > LONGEST_JSON:
        raise ValueError(f"{info.filename} has {info.file_size:,} bytes")
    return json.loads(archive.read(info))


def _tensors(
    archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo], folder: str, config: str
) -> dict[str, Tensor]:
    """Weights by name; several may share their bytes."""
    stored: dict[str, Tensor] = {}
    found = {}
    for name, payload in _json(archive, entries[config])["config"].items():
        if payload["use_pickle"]:
            raise ConfigError(
                f"{archive.filename}: {name[:100]!r} is a pickle, which can run code: it is not "
                "opened"
            )
        entry, meta = payload["path_name"], payload["tensor_meta"]
        if entry not in stored:
            info = entries[folder + entry]
            with archive.open(info) as stream:
                stored[entry] = read_bytes(stream, info.file_size)
        _check_device(meta["device"])
        shape, strides = ([each["as_int"] for each in meta[key]] for key in ("sizes", "strides"))
        values = stored[entry].view(DTYPES[meta["dtype"]])
        # torch checks that all of it lies inside
        found[name] = values.as_strided(shape, strides, meta["storage_offset"]["as_int"])
    return found


def _check_device(device: Mapping[str, Any]) -> None:
    if device["type"] != "cpu":
        raise ValueError(f"device {device['type']!r}: exported files run on the CPU")


class _GraphReader:
    """Makes steps of the JSON of a graph module."""

    def __init__(self, path: Path, module: Mapping[str, Any], weights: dict[str, Tensor]) -> None:
        self.path, self.weights = path, weights
        self.nodes, self.signature = module["graph"]["nodes"], module["signature"]
        self.metas = module["graph"]["tensor_values"]
        self.slots: dict[str, Slot] = {}
        self.last_use: dict[int, int] = {}

    def graph(self) -> TorchGraph:
        calls = [operator_of(node["target"], self.path) for node in self.nodes]  # before all else
        values: list[Tensor | None] = []
        images = []
        for spec in self.signature["input_specs"]:
            name, value = self._input(spec)
            if value is None:
                images.append(name)
            self._new(name)
            values.append(value)
        if len(images) != 1:
            raise ValueError(f"{len(images)} inputs")
        drafts = [
            self._step(number, node, call)
            for number, (node, call) in enumerate(zip(self.nodes, calls, strict=True))
        ]
        names = [self._output(spec) for spec in self.signature["output_specs"]]
        kept = {self.slots[name].number for name in names}
        ends: dict[int, list[int]] = {}
        for slot, step in self.last_use.items():
            if slot not in kept:
                ends.setdefault(step, []).append(slot)
        steps = [
            step._replace(done_with=ends.get(number, [])) for number, step in enumerate(drafts)
        ]
        return TorchGraph(
            values + [None] * (len(self.slots) - len(values)),
            steps,
            self.slots[images[0]].number,
            [self.slots[name] for name in names],
            self._shape(images[0]),
            [self._shape(name) for name in names],
        )

    def _new(self, name: str) -> Slot:
        if name in self.slots:
            raise ValueError(f"two values are called {name[:100]!r}")
        self.slots[name] = Slot(len(self.slots))
        return self.slots[name]

    def _input(self, spec: Mapping[str, Any]) -> tuple[str, Tensor | None]:
        ((kind, about),) = spec.items()
        if kind == "user_input":
            return about["arg"]["as_tensor"]["name"], None
        if kind not in ("parameter", "buffer", "tensor_constant"):
            raise ConfigError(f"{self.path} takes a {kind!r}, which no export of Vitreous does")
        return about["arg"]["name"], self.weights[about[f"{kind}_name"]]

    def _output(self, spec: Mapping[str, Any]) -> str:
        ((kind, about),) = spec.items()
        if kind != "user_output":
            raise ConfigError(f"{self.path} gives a {kind!r}, which no export of Vitreous does")
        return about["arg"]["as_tensor"]["name"]

    def _shape(self, name: str) -> Shape:
        return tuple(each.get("as_int") for each in self.metas[name]["sizes"])

    def _step(self, number: int, node: Mapping[str, Any], call: Callable[..., Any]) -> Step:
        given = [(each["name"], self._value(each["arg"], number)) for each in node["inputs"]]
        args, kwargs = _arranged(call, given)
        outputs = [self._results(each, number) for each in node["outputs"]]
        return Step(call, args, kwargs, outputs, [])

    def _value(self, argument: Mapping[str, Any], step: int) -> Any:
        ((kind, value),) = argument.items()
        if kind not in VALUES:
            raise ConfigError(
                f"{self.path} gives an operator {kind[:40]!r}, which no export of Vitreous does"
            )
        return VALUES[kind](value, lambda name: self._read(name, step))

    def _read(self, name: str, step: int) -> Slot:
        slot = self.slots[name]
        self.last_use[slot.number] = step
        return slot

    def _results(self, output: Mapping[str, Any], step: int) -> Any:
        ((kind, value),) = output.items()
        if kind == "as_none":
            return None
        if kind == "as_tensors":
            slots = [self._new(each["name"]) for each in value]
        elif kind == "as_tensor":
            slots = [self._new(value["name"])]
        else:
            slots = [self._new(value["as_name"])]
        for slot in slots:
            self.last_use[slot.number] = step
        return slots if kind == "as_tensors" else slots[0]


def operator_of(target: str, path: Path) -> Callable[..., Any]:
    """What a graph calls by this name, if it may."""
    if target in NUMBERS:
        return NUMBERS[target]
    found = re.fullmatch(r"torch\.ops\.aten\.(\w+)\.(\w+)", target)
    if found and found[1] in OPERATORS:
        function = getattr(getattr(torch.ops.aten, found[1]), found[2], None)
        if isinstance(function, torch._ops.OpOverload) and (
            not function._schema.is_mutable or found[1].endswith("_")
        ):
            return function
    raise ConfigError(
        f"{path} calls {target[:100]!r}, which is not one of the tensor functions that exported "
        "files may call: it is not opened"
    )


def _arranged(
    call: Callable[..., Any], given: list[tuple[str, Any]]
) -> tuple[list[Any], dict[str, Any]]:
    """Values by place, as long as none before is missing, and then by name."""
    if not isinstance(call, torch._ops.OpOverload):
        return [value for _, value in given], {}
    named = dict(given)
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for place, about in enumerate(call._schema.arguments):
        if about.name not in named:
            continue
        if place == len(args) and not about.kwarg_only:
            args.append(named.pop(about.name))
        else:
            kwargs[about.name] = named.pop(about.name)
    if named:
        raise ValueError(f"{call} has no argument {min(named)!r}")
    return args, kwargs


Read = Callable[[str], Slot]


def _tensor(value: Mapping[str, Any], read: Read) -> Slot:
    return read(value["name"])


def _optional(value: Mapping[str, Any], read: Read) -> Slot | None:
    return None if "as_none" in value else _tensor(value["as_tensor"], read)


def _number(value: Mapping[str, Any], read: Read) -> Any:
    """A number, or the name of one that is computed."""
    ((kind, number),) = value.items()
    return read(number) if kind == "as_name" else number


def _each(one: Callable[[Any, Read], Any]) -> Callable[[Any, Read], list[Any]]:
    return lambda values, read: [one(value, read) for value in values]


def _float(value: Any, read: Read) -> float:
    return float(value)  # "Infinity" and "NaN" are words in the file


def _layout(value: Any, read: Read) -> torch.layout:
    if value != STRIDED:
        raise ValueError(f"layout {value!r}")
    return torch.strided


def _device(value: Mapping[str, Any], read: Read) -> torch.device:
    _check_device(value)
    return torch.device("cpu")


def _plain(kind: type) -> Callable[[Any, Read], Any]:
    def value_of(value: Any, read: Read) -> Any:
        if type(value) is not kind:
            raise ValueError(f"{value!r} is no {kind.__name__}")
        return value

    return value_of


VALUES: dict[str, Callable[[Any, Read], Any]] = {
    "as_none": lambda value, read: None,
    "as_tensor": _tensor,
    "as_tensors": _each(_tensor),
    "as_optional_tensors": _each(_optional),
    "as_int": _plain(int),
    "as_ints": _each(_plain(int)),
    "as_float": _float,
    "as_floats": _each(_float),
    "as_bool": _plain(bool),
    "as_bools": _each(_plain(bool)),
    "as_string": _plain(str),
    "as_sym_int": _number,
    "as_sym_ints": _each(_number),
    "as_sym_float": _number,
    "as_sym_bool": _number,
    "as_scalar_type": lambda value, read: DTYPES[value],
    "as_memory_format": lambda value, read: MEMORY_FORMATS[value],
    "as_layout": _layout,
    "as_device": _device,
}
"""How an argument is written."""
