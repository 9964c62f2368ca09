"""Weight files: every kind there and back, and everything that a stranger's file may try."""

from __future__ import annotations

import argparse
import io
import json
import os
import pickle
import random
import resource
import struct
import sys
import time
import types
import zipfile
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import vitreous
from vitreous.errors import CheckpointError
from vitreous.weights.io import readers, safe_globals, writers
from vitreous.weights.io.files import read_tensors, write_tensors

KINDS = ("safetensors", "npz", "pth", "pdparams")
NUMPY_DTYPES = (
    *(torch.float16, torch.float32, torch.float64, torch.bool, torch.uint8, torch.int8),
    *(torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
)


def assert_same(read: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert set(read) == set(expected)
    for name, tensor in expected.items():
        assert read[name].dtype == tensor.dtype
        assert read[name].device.type == "cpu"
        assert type(read[name]) is Tensor
        assert not read[name].requires_grad
        assert torch.equal(read[name], tensor.detach()), name


def refusal(path: Path, inside: str | None = None) -> str:
    """The message of the error that reading must raise."""
    with pytest.raises(CheckpointError) as caught:
        read_tensors(path, inside)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)


def some_tensors() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "cls_token": torch.randn(1, 1, 6, generator=generator),
        "blocks.0.weight": torch.randn(4, 6, generator=generator),
        "scale": torch.tensor(0.5),
        "steps": torch.tensor(7),
    }


# --- round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", NUMPY_DTYPES, ids=str)
def test_every_dtype_returns(tmp_path: Path, kind: str, dtype: torch.dtype) -> None:
    tensors = {"a": torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype), "b": torch.tensor(1).to(dtype)}
    write_tensors(tmp_path / "w", tensors, kind)
    assert_same(read_tensors(tmp_path / "w").tensors, tensors)


@pytest.mark.parametrize("kind", ["safetensors", "pth"])
def test_bfloat16_returns(tmp_path: Path, kind: str) -> None:
    tensors = {"a": torch.randn(5, 3).bfloat16()}
    write_tensors(tmp_path / "w", tensors, kind)
    assert_same(read_tensors(str(tmp_path / "w")).tensors, tensors)


@pytest.mark.parametrize("kind", ["npz", "pdparams"])
def test_bfloat16_needs_conversion(tmp_path: Path, kind: str) -> None:
    with pytest.raises(CheckpointError, match=r"w: tensor 'a' is bfloat16.*convert it first"):
        write_tensors(tmp_path / "w", {"a": torch.zeros(2).bfloat16()}, kind)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_unusual_layouts_return(tmp_path: Path, kind: str) -> None:
    matrix = torch.randn(4, 5)
    tensors = {
        "transposed": matrix.t(),
        "column": matrix[:, 1],
        "shared": matrix,
        "shared_again": matrix,
        "shared_view": matrix.view(-1)[3:9],
        "expanded": torch.ones(1).expand(3),
        "parameter": nn.Parameter(torch.randn(2)),
        "no_dimension": torch.tensor(1.5),
        "empty": torch.zeros(0, 3),
        "empty_too": torch.zeros(0),
        "file": torch.ones(1),  # numpy.savez could not write this name
        "größe/✓": torch.ones(1),
    }
    write_tensors(tmp_path / "w", tensors, kind)
    assert_same(read_tensors(tmp_path / "w").tensors, tensors)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_read_can_be_changed_without_changing_the_file(tmp_path: Path, kind: str) -> None:
    write_tensors(tmp_path / "w", some_tensors(), kind)
    for tensor in read_tensors(tmp_path / "w").tensors.values():
        tensor.add_(1)
    assert_same(read_tensors(tmp_path / "w").tensors, some_tensors())


def test_a_view_is_written_without_the_rest_of_its_storage(tmp_path: Path) -> None:
    write_tensors(tmp_path / "w", {"a": torch.zeros(1_000_000)[:2]}, "pth")
    assert (tmp_path / "w").stat().st_size < 10_000


def test_metadata_and_path(tmp_path: Path) -> None:
    path = tmp_path / "w.bin"
    write_tensors(path, some_tensors(), "safetensors", {"made": "here"})
    checkpoint = read_tensors(path)
    assert (checkpoint.metadata, checkpoint.path) == ({"made": "here"}, path)
    write_tensors(path, some_tensors(), "pth")
    assert read_tensors(path).metadata == {}
    with pytest.raises(CheckpointError, match="metadata"):
        write_tensors(path, some_tensors(), "pth", {"made": "here"})


# --- files of other writers ----------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_torch_state_dicts(tmp_path: Path, zipped: bool, protocol: int) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).half()
    torch.save(
        module.state_dict(keep_vars=True),  # parameters, and the attribute `_metadata`
        tmp_path / "w",
        _use_new_zipfile_serialization=zipped,
        pickle_protocol=protocol,
    )
    assert_same(read_tensors(tmp_path / "w").tensors, module.state_dict())


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_torch_views_of_one_storage(tmp_path: Path, zipped: bool) -> None:
    base = torch.arange(24.0).view(4, 6)
    tensors = {"a": base, "b": base.t(), "c": base[1:, 2:4], "d": base[0, :1].expand(3)}
    torch.save(tensors, tmp_path / "w", _use_new_zipfile_serialization=zipped)
    read = read_tensors(tmp_path / "w").tensors
    assert_same(read, tensors)
    assert len({tensor.untyped_storage().data_ptr() for tensor in read.values()}) == 1


def training_checkpoint(**models: Any) -> dict[str, Any]:
    return {
        **models,
        "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 0.1}]},
        "epoch": 3,
        "best": np.float64(0.9),
        "history": np.arange(4),
        "classes": {"cat", "dog"},
        "size": torch.Size([2, 3]),
        "dtype": torch.float32,
        "digest": b"\x00\xff",
        "nothing": (None, b"", frozenset([1]), bytearray(b"x"), 2**70),
        "args": argparse.Namespace(lr=0.1, betas=(0.9, 0.99), nested=argparse.Namespace(a=[1])),
    }


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("key", ["model", "state_dict", "model_ema", "params", "module"])
def test_training_checkpoints(tmp_path: Path, zipped: bool, protocol: int, key: str) -> None:
    content = training_checkpoint(**{key: OrderedDict(some_tensors())})
    torch.save(
        content, tmp_path / "w", _use_new_zipfile_serialization=zipped, pickle_protocol=protocol
    )
    assert_same(read_tensors(tmp_path / "w").tensors, some_tensors())


class CfgNode(dict[str, Any]):
    """Is pickled as yacs' own: its items, and attributes beside them."""

    def __init__(self, **items: Any) -> None:
        super().__init__(items)
        self.__dict__ |= {"__immutable__": True, "__deprecated_keys__": {"OLD"}}


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("protocol", [2, 4])
def test_the_config_of_swin_releases_is_read_past(
    tmp_path: Path, zipped: bool, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """yacs is asked for nothing: its name in the file stands for a plain dictionary."""
    config = CfgNode(MODEL=CfgNode(TYPE="swin", DEPTHS=[2, 2]), AMP_OPT_LEVEL="O1", TAG=None)
    with monkeypatch.context() as patched:  # the name is there only while the file is written
        package = types.ModuleType("yacs.config")
        package.CfgNode = CfgNode  # type: ignore[attr-defined]
        for name in ("yacs", "yacs.config"):
            patched.setitem(sys.modules, name, package)
        patched.setattr(CfgNode, "__module__", "yacs.config")
        torch.save(
            {"model": some_tensors(), "config": config, "epoch": 299},
            tmp_path / "w",
            _use_new_zipfile_serialization=zipped,
            pickle_protocol=protocol,
        )
    assert b"yacs.config" in (tmp_path / "w").read_bytes()
    assert_same(read_tensors(tmp_path / "w").tensors, some_tensors())


def test_several_models_need_a_choice(tmp_path: Path) -> None:
    ema = {name: tensor + 1 for name, tensor in some_tensors().items()}
    path = tmp_path / "w"
    torch.save(training_checkpoint(model=some_tensors(), model_ema=ema, teacher=ema), path)
    assert "(model_ema, model)" in refusal(path)
    assert_same(read_tensors(path, inside="model").tensors, some_tensors())
    assert_same(read_tensors(path, inside="teacher").tensors, ema)
    assert "'model_ema' (dict)" in refusal(path, inside="student")
    assert "no tensors" in refusal(path, inside="args")


@pytest.mark.parametrize("kind", ["safetensors", "npz"])
def test_flat_files_have_no_inside(tmp_path: Path, kind: str) -> None:
    write_tensors(tmp_path / "w", some_tensors(), kind)
    assert "inside='model'" in refusal(tmp_path / "w", inside="model")


def test_what_is_no_tensor_is_named(tmp_path: Path) -> None:
    torch.save({"model": some_tensors() | {"epoch": 3, "note": None}}, tmp_path / "w")
    assert "'epoch' (int), 'note' (NoneType)" in refusal(tmp_path / "w")
    torch.save(some_tensors() | {5: torch.zeros(1)}, tmp_path / "w")
    assert "5 (StoredTensor)" in refusal(tmp_path / "w")
    for content in ({}, {"epoch": 3}, [torch.zeros(1)], torch.zeros(1), "text", None):
        torch.save(content, tmp_path / "w")
        refusal(tmp_path / "w")


@pytest.mark.parametrize(
    "prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."]
)
@pytest.mark.parametrize("kind", KINDS)
def test_prefixes_of_wrappers_are_removed(tmp_path: Path, kind: str, prefix: str) -> None:
    prefixed = {f"{prefix}{name}": tensor for name, tensor in some_tensors().items()}
    write_tensors(tmp_path / "w", prefixed, kind)
    assert_same(read_tensors(tmp_path / "w").tensors, some_tensors())


def test_a_prefix_of_some_names_stays(tmp_path: Path) -> None:
    tensors = {"module.a": torch.zeros(1), "b": torch.zeros(1)}
    write_tensors(tmp_path / "w", tensors, "safetensors")
    assert_same(read_tensors(tmp_path / "w").tensors, tensors)


class PaddleTensor:
    """Is pickled as paddle's tensors in nested dictionaries are, with their own names."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (("linear_0.w_0", self.array),)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_paddle_files(tmp_path: Path, protocol: int) -> None:
    arrays = {
        "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big_endian": np.arange(3, dtype=">i4"),
        "scalar": np.array(2.5, dtype=np.float16),
        "empty": np.zeros((0, 2), dtype=bool),
    }
    expected = {
        name: torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
        for name, array in arrays.items()
    }
    table = {"StructuredToParameterName@@": {name: name for name in arrays}}
    (tmp_path / "w").write_bytes(pickle.dumps(arrays | table, protocol))
    assert_same(read_tensors(tmp_path / "w").tensors, expected)
    nested = {"epoch": 1, "model": {name: PaddleTensor(array) for name, array in arrays.items()}}
    (tmp_path / "w").write_bytes(pickle.dumps(nested, protocol))
    assert_same(read_tensors(tmp_path / "w").tensors, expected)


def test_paddle_reads_what_we_write(tmp_path: Path) -> None:
    """Paddle uses `pickle.load` with latin1; its numpy may be older than the name numpy._core."""
    write_tensors(tmp_path / "w", some_tensors() | {"empty": torch.zeros(0, 2)}, "pdparams")
    content = (tmp_path / "w").read_bytes()
    assert content.startswith(b"\x80\x04")
    assert b"numpy._core" not in content
    arrays = pickle.loads(content, encoding="latin1")
    assert arrays["empty"].shape == (0, 2)
    for name, tensor in some_tensors().items():
        assert arrays[name].dtype == tensor.numpy().dtype
        assert arrays[name].flags.writeable
        np.testing.assert_array_equal(arrays[name], tensor.numpy())


def test_numpy_files(tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "a/kernel": np.arange(6, dtype=np.float32).reshape(2, 3),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "big_endian": np.arange(3, dtype=">f8"),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "w.npz", **arrays)
        read = read_tensors(tmp_path / "w.npz").tensors
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name].numpy(), array)
    write_tensors(tmp_path / "w.npz", some_tensors(), "npz")
    with np.load(tmp_path / "w.npz", allow_pickle=False) as archive:
        for name, tensor in some_tensors().items():
            np.testing.assert_array_equal(archive[name], tensor.numpy())


def test_torch_loads_what_we_write(tmp_path: Path) -> None:
    write_tensors(tmp_path / "w", some_tensors(), "pth")
    assert_same(torch.load(tmp_path / "w", weights_only=True), some_tensors())


# --- folders -------------------------------------------------------------------------------------


def write_shards(folder: Path, weight_map: Any) -> Path:
    save_file({"a": torch.zeros(2)}, folder / "model-1.safetensors")
    save_file({"b": torch.ones(2)}, folder / "model-2.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    return index


def test_folders(tmp_path: Path) -> None:
    (tmp_path / "readme.md").write_text("hello")
    assert "readme.md" in refusal(tmp_path)
    torch.save({"bin": torch.zeros(1)}, tmp_path / "pytorch_model.bin")
    assert read_tensors(tmp_path).path == tmp_path / "pytorch_model.bin"
    index = write_shards(tmp_path, {"a": "model-1.safetensors", "b": "model-2.safetensors"})
    for path in (tmp_path, index):
        assert read_tensors(path).path == index
        assert_same(read_tensors(path).tensors, {"a": torch.zeros(2), "b": torch.ones(2)})
    save_file({"single": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert list(read_tensors(tmp_path).tensors) == ["single"]


@pytest.mark.parametrize(
    "weight_map",
    [
        *({"a": name} for name in ("../model.safetensors", "/etc/passwd", "..", "a\\b", "", 5)),
        *({}, [], None, {"a": "x\0y"}, {"a": ["model-1.safetensors"]}, {"a": "C:model"}),
        {"a": "model-1.safetensors", "missing": "model-1.safetensors"},
    ],
    ids=repr,
)
def test_bad_shard_indices(tmp_path: Path, weight_map: Any) -> None:
    index = write_shards(tmp_path, weight_map)
    with pytest.raises(CheckpointError) as caught:
        read_tensors(tmp_path)
    assert str(caught.value).startswith(str(index))


def test_bad_shards(tmp_path: Path) -> None:
    index = write_shards(tmp_path, {"a": "model-1.safetensors", "b": "absent.safetensors"})
    with pytest.raises(CheckpointError, match=r"absent\.safetensors: no such file"):
        read_tensors(tmp_path)
    index.write_text("{" * 100_000)
    refusal(index)
    index.write_text('{"weight_map": {"a": "model-1.safetensors", "b": "twice.safetensors"}}')
    save_file({"a": torch.zeros(1), "b": torch.zeros(1)}, tmp_path / "twice.safetensors")
    assert "'a' is in two of its files" in refusal(index)


# --- files that are no weights, or no longer -----------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"\n <!DOCTYPE html><html>", "HTML"),
        (b"\xef\xbb\xbf<html>", "HTML"),
        (b"\xff\xd8\xff\xe0 jpeg", "JPEG"),
        (b"\x89PNG\r\n", "PNG"),
        (b"\x93NUMPY\x01\x00", "numpy.savez"),
        (b'{"a": 1}', "JSON"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"some text", "unknown type"),
        (b"\x80", "unknown type"),
        (b"PK\x03\x04", "damaged or incomplete"),
    ],
)
def test_other_files_are_recognised(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "model.pth").write_bytes(content)
    assert says in refusal(tmp_path / "model.pth")


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.pth")
    refusal(tmp_path / "a\0b")
    refusal(tmp_path / ("long" * 1000))
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in refusal(tmp_path / "pipe")
    with zipfile.ZipFile(tmp_path / "w.zip", "w") as archive:
        archive.writestr("hello.txt", "hello")
    assert "hello.txt" in refusal(tmp_path / "w.zip")


def small_files() -> dict[str, bytes]:
    """One small file of each kind, as other programs write them."""
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in some_tensors().items()}
    files: dict[str, Callable[[io.BytesIO], object]] = {
        "zip": lambda file: torch.save(OrderedDict(some_tensors()), file),
        "legacy": lambda file: torch.save(
            training_checkpoint(model=some_tensors()), file, _use_new_zipfile_serialization=False
        ),
        "npz": lambda file: np.savez(file, **arrays),
        "compressed": lambda file: np.savez_compressed(file, a=np.arange(50), b=np.ones((3, 4))),
        "pickle": lambda file: file.write(pickle.dumps(arrays, 4)),
    }
    contents = {}
    for kind, write in files.items():
        file = io.BytesIO()
        write(file)
        contents[kind] = file.getvalue()
    header = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
    contents["safetensors"] = struct.pack("<Q", len(header)) + header + bytes(range(24))
    return contents


@pytest.mark.parametrize("kind", ["zip", "legacy", "npz", "compressed", "pickle", "safetensors"])
def test_truncated_files(tmp_path: Path, kind: str) -> None:
    content = small_files()[kind]
    (tmp_path / "w").write_bytes(content)
    read_tensors(tmp_path / "w")
    for length in {1, 5, 9, 20, *(len(content) * i // 10 for i in range(1, 10)), len(content) - 1}:
        (tmp_path / "w").write_bytes(content[:length])
        refusal(tmp_path / "w")


@pytest.mark.filterwarnings("error")
def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    """1,200 damaged files: nothing but success or a CheckpointError, and no hunger for memory."""
    chance = random.Random(0)
    originals = list(small_files().items())
    with zipfile.ZipFile(io.BytesIO(small_files()["zip"])) as archive:
        program = archive.read("archive/data.pkl")
    path = tmp_path / "w"
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for case in range(1200):
        kind, content = originals[case % len(originals)]
        if kind == "zip" and case % 2 == 0:
            # Past the checksum of the archive, into the pickle.
            storages = {str(i): bytes(t.nbytes) for i, t in enumerate(some_tensors().values())}
            path.write_bytes(in_zip(mutated(program, chance), storages))
        else:
            path.write_bytes(mutated(content, chance))
        assert outcome(path).startswith(str(path))
    grown_kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    assert grown_kilobytes < 100_000


def outcome(path: Path) -> str:
    try:
        return str(read_tensors(path).path)
    except CheckpointError as error:
        return str(error)


def mutated(content: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        # Headers and pickles stand first: half of the damage goes there.
        position = chance.randrange(min(len(damaged), chance.choice([400, len(damaged)])) or 1)
        match chance.randrange(8):
            case 0:
                del damaged[position:]
            case 1:
                damaged[position:position] = chance.randbytes(chance.randint(1, 9))
            case 2:
                del damaged[position : position + chance.randint(1, 9)]
            case 3:
                damaged[position : position + 4] = b"\xff\xff\xff\x7f"
            case _ if damaged:
                damaged[position] = chance.randrange(256)
    return bytes(damaged)


# --- hostile files -------------------------------------------------------------------------------


class StorageReference:
    def __init__(self, *identifier: Any) -> None:
        self.identifier = identifier


class ProgramWriter(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        return value.identifier if isinstance(value, StorageReference) else None


def program_of(value: Any, protocol: int = 2) -> bytes:
    file = io.BytesIO()
    ProgramWriter(file, protocol).dump(value)
    return file.getvalue()


def in_zip(program: bytes, storages: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("archive/data.pkl", program)
        archive.writestr("archive/byteorder", "little")
        for key, content in storages.items():
            archive.writestr(f"archive/data/{key}", content)
    return file.getvalue()


def in_legacy(program: bytes, storages: dict[str, bytes]) -> bytes:
    preamble = (readers.LEGACY_MAGIC, readers.LEGACY_PROTOCOL, {"little_endian": True})
    parts = [pickle.dumps(value, 2) for value in preamble]
    parts += [program, pickle.dumps(list(storages), 2)]
    for content in storages.values():
        parts += [struct.pack("<q", len(content) // 4), content]
    return b"".join(parts)


def in_plain(program: bytes, _storages: dict[str, bytes]) -> bytes:
    return program


PACKAGES = (in_zip, in_legacy, in_plain)


class Calls:
    """Is pickled as a call of the given function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


def leave_a_mark(path: str) -> None:
    Path(path).touch()


def _object_array(value: Any) -> np.ndarray:
    array = np.empty(1, dtype=object)
    array[0] = value
    return array


ATTACKS: dict[str, Callable[[str], Any]] = {
    "os.system": lambda mark: Calls(os.system, f"touch {mark}"),
    "eval": lambda mark: Calls(eval, f"open({mark!r}, 'w')"),
    "exec": lambda mark: Calls(exec, f"open({mark!r}, 'w')"),
    "open": lambda mark: Calls(open, mark, "w"),
    "own function": lambda mark: Calls(leave_a_mark, mark),
    "getattr of a dtype": lambda mark: Calls(getattr, torch.float32, "__class__"),
    "import": lambda mark: Calls(__import__, "os"),
    "torch.load": lambda mark: Calls(torch.load, mark),
    "pickle.loads": lambda mark: Calls(pickle.loads, pickle.dumps(Calls(leave_a_mark, mark))),
    "load_from_bytes": lambda mark: Calls(torch.storage._load_from_bytes, b""),
    "object array": lambda mark: _object_array(Calls(leave_a_mark, mark)),
    "array of a call": lambda mark: Calls(np.dtype, Calls(leave_a_mark, mark)),
    "structured dtype": lambda mark: np.zeros(1, dtype=[("a", "O")]),
    "a whole module": lambda mark: nn.Linear(1, 1),
    "a class": lambda mark: argparse.ArgumentParser,
}


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_code_runs(tmp_path: Path, attack: str, protocol: int, package: Any) -> None:
    mark = tmp_path / "mark"
    program = program_of({"model": {"w": ATTACKS[attack](str(mark))}}, protocol)
    (tmp_path / "w").write_bytes(package(program, {}))
    refusal(tmp_path / "w")
    assert not mark.exists()


def test_the_refusal_says_what_why_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "w").write_bytes(in_zip(program_of({"w": Calls(os.system, "true")}), {}))
    message = refusal(tmp_path / "w")
    for part in ("'posix.system'", "code", "safetensors", "torch.save(model.state_dict()"):
        assert part in message


REBUILD = b"ctorch._utils\n_rebuild_tensor_v2\n"
STORAGE = b"(X\7\0\0\0storagectorch\nFloatStorage\n"
TENSOR = REBUILD + b"(" + STORAGE + b"X\1\0\0\x000NK\4tQ" + b"K\0K\4\x85K\1\x85\x89}tR"
NAMESPACE = b"cargparse\nNamespace\n"
CODE = b"}X\x08\0\0\0__code__Ns"
DEFAULTS = b"N}X\x0c\0\0\0__defaults__)s\x86"

PROGRAMS = {
    "state of a function": REBUILD + CODE + b"b",
    "slots of a function": REBUILD + DEFAULTS + b"b",
    "state of a class": NAMESPACE + CODE + b"b",
    "state of a config's class": b"cyacs.config\nCfgNode\n" + CODE + b"b",
    "another name of yacs": b"cyacs.config\nload_cfg\n(X\1\0\0\0atR",
    "slots of a class": NAMESPACE + b"N}X\x0c\0\0\0__setstate__Ns\x86b",
    "state of a storage type": b"ctorch\nFloatStorage\n" + CODE + b"b",
    "state of a dtype": b"ctorch\nfloat32\n" + CODE + b"b",
    "state of a tensor": TENSOR + b"(K\0K\x01K\x02K\x03tb",
    "state of a list": b"]" + CODE + b"b",
    "items of a tensor": TENSOR + b"K\0K\x01s",
    "items of a function": REBUILD + b"K\0K\x01s",
    "items of a list": b"]K\x05K\x01s",
    "append to a tensor": TENSOR + b"K\0a",
    "append to a dictionary": b"}K\0a",
    "append to a function": REBUILD + b"(K\0e",
    "add to a tensor": TENSOR + b"(K\0\x90",
    "call of a tensor": TENSOR + b")R",
    "call of a dictionary": b"})R",
    "call of a dtype": b"ctorch\nfloat32\n)\x81",
    "call of a storage type": b"ctorch\nFloatStorage\n)R",
    "call with no tuple": REBUILD + b"K\0R",
    "parameter of a number": b"ctorch._utils\n_rebuild_parameter\n(K\1\x89}tR",
    "tensor of no storage": REBUILD + b"(K\1K\0)))tR",
    "number from too few bytes": b"cnumpy.core.multiarray\nscalar\n"
    b"(cnumpy\ndtype\n(X\2\0\0\0f8tRC\1atR",
    "getattr": b"cbuiltins\ngetattr\n(" + REBUILD + b"X\x0b\0\0\0__globals__tR",
    "dtype of objects": b"cnumpy\ndtype\n(X\2\0\0\0O8\x89\x88tR",
    "inst": b"(X\4\0\0\0trueiposix\nsystem\n",
    "obj": b"(cposix\nsystem\nX\4\0\0\0trueo",
    "ext": b"\x82\x01",
    "dotted name": b"X\5\0\0\0torchX\x17\0\0\0serialization.os.system\x93",
    "name of no text": b"K\1K\2\x93",
    "module storage": b"(X\x06\0\0\0moduleK\1K\2tQ",
    "negative storage": STORAGE + b"X\1\0\0\x000NJ\xff\xff\xff\xfftQ",
    "unknown storage": STORAGE + b"X\1\0\0\x009NK\x04tQ",
    "storage of wrong size": STORAGE + b"X\1\0\0\x000NK\x05tQ",
    "path as a storage key": STORAGE + b"X\5\0\0\0../..NK\x04tQ",
    "endless tuple as key": b"})" + b"\x85" * 200_000 + b"Ns",
    "exponential tuple as key": b"})" + b"q\1h\1\x86" * 70 + b"Ns",
    "exponential tuple in a set": b"\x8f()" + b"q\1h\1\x86" * 70 + b"\x90",
    "exponential tuple as shape": TENSOR.removesuffix(b"K\4\x85K\1\x85\x89}tR")
    + (b")" + b"q\1h\1\x86" * 70 + b"K\1\x85\x89}tR"),
    "long text for a number": b"I" + b"9" * 10_000 + b"\n",
    "large bytes that are not there": b"\x8e\0\0\0\0\x04\0\0\0abc",
    "empty stack": b"R",
    "no mark": b"t",
    "tuple of nothing": b"\x87",
}


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_hostile_instructions(tmp_path: Path, name: str, package: Any) -> None:
    program = b"\x80\x04}X\1\0\0\0w" + PROGRAMS[name] + b"s."
    (tmp_path / "w").write_bytes(package(program, {"0": bytes(16)}))
    refusal(tmp_path / "w")
    # And the next file is read as ever.
    write_tensors(tmp_path / "good", some_tensors(), "pth")
    assert_same(read_tensors(tmp_path / "good").tensors, some_tensors())


def test_the_hostile_tensor_alone_is_good(tmp_path: Path) -> None:
    """The programs above fail for what they do, not for a mistake in their tensor."""
    program = b"\x80\x04}X\1\0\0\0w" + TENSOR + b"s."
    for package in (in_zip, in_legacy):
        (tmp_path / "w").write_bytes(package(program, {"0": bytes(16)}))
        assert_same(read_tensors(tmp_path / "w").tensors, {"w": torch.zeros(4)})


def test_a_large_memo_index_takes_no_memory(tmp_path: Path) -> None:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    program = b"\x80\x02}r\xff\xff\xff\x7fX\1\0\0\0w" + TENSOR + b"s."
    (tmp_path / "w").write_bytes(in_zip(program, {"0": bytes(16)}))
    assert_same(read_tensors(tmp_path / "w").tensors, {"w": torch.zeros(4)})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 50_000


@pytest.mark.parametrize("package", [in_zip, in_legacy])
@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [
        *((1, (4,), (1,)), (0, (5,), (1,)), (0, (2,), (4,)), (0, (2, 2), (3, 1)), (5, (0,), (1,))),
        *(
            (-1, (4,), (1,)),
            (0, (-4,), (1,)),
            (0, (4,), (-1,)),
            (3, (4,), (-1,)),
            (0, (2, 2), (1,)),
        ),
        *((0, (2**62, 4), (0, 1)), (0, (2**40,), (0,)), (0, (2**63,), (0,)), (2**70, (1,), (1,))),
        *((0, (2**32, 2**32), (0, 0)), (0, (1,) * 65, (1,) * 65), (0.0, (4,), (1,))),
        *((0, 4, 1), (0, "4", "1"), (0, (True,), (1,)), (0, None, None), (None, (4,), (1,))),
        *((0, [4], [1]), (0, (4.0,), (1,))),
    ],
    ids=repr,
)
def test_tensors_outside_their_storage(
    tmp_path: Path, offset: Any, size: Any, stride: Any, package: Any
) -> None:
    reference = StorageReference("storage", torch.FloatStorage, "0", "cpu", 4)
    rebuild = torch._utils._rebuild_tensor_v2
    value = Calls(rebuild, reference, offset, size, stride, False, OrderedDict())
    (tmp_path / "w").write_bytes(package(program_of({"w": value}), {"0": bytes(16)}))
    refusal(tmp_path / "w")


def test_storages_that_do_not_agree_with_the_file(tmp_path: Path) -> None:
    good = {"w": torch.arange(4.0)}
    torch.save(good, tmp_path / "w", _use_new_zipfile_serialization=False)
    content = (tmp_path / "w").read_bytes()
    length = struct.pack("<q", 4)
    assert content.count(length) == 1
    for wrong in (0, 3, 5, 2**40, -1):
        (tmp_path / "w").write_bytes(content.replace(length, struct.pack("<q", wrong)))
        refusal(tmp_path / "w")
    program = b"\x80\x04}X\1\0\0\0w" + TENSOR + b"s."
    for storages in ({}, {"1": bytes(16)}, {"0": bytes(15)}, {"0": bytes(20)}):
        for package in (in_zip, in_legacy):
            (tmp_path / "w").write_bytes(package(program, storages))
            refusal(tmp_path / "w")


def test_numbers_too_large_to_seek_to(tmp_path: Path) -> None:
    reference = StorageReference("storage", torch.DoubleStorage, "0", "cpu", 2**63)
    empty = Calls(torch._utils._rebuild_tensor_v2, reference, 0, (0,), (1,), False, OrderedDict())
    content = in_legacy(program_of({"w": empty}), {"0": b""})
    (tmp_path / "w").write_bytes(content[:-8] + struct.pack("<Q", 2**63))
    assert "incomplete" in refusal(tmp_path / "w")
    with zipfile.ZipFile(tmp_path / "w", "w") as archive:
        archive.writestr("archive/data.pkl", program_of({"w": 1}))
        archive.writestr("archive/byteorder", "little")
        archive.getinfo("archive/byteorder").header_offset = 2**63 + 1
    refusal(tmp_path / "w")


def test_torch_archives_must_be_plain(tmp_path: Path) -> None:
    program = b"\x80\x04}X\1\0\0\0w" + TENSOR + b"s."
    (tmp_path / "w").write_bytes(in_zip(program, {"0": bytes(16)}, zipfile.ZIP_DEFLATED))
    assert "compressed" in refusal(tmp_path / "w")
    good = in_zip(program, {"0": bytes(16)})
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        crc = struct.pack("<I", archive.getinfo("archive/byteorder").CRC)
    (tmp_path / "w").write_bytes(good.replace(b"little", b"big   "))
    refusal(tmp_path / "w")
    big = struct.pack("<I", zlib.crc32(b"big   "))
    (tmp_path / "w").write_bytes(good.replace(b"little", b"big   ").replace(crc, big))
    assert "big-endian" in refusal(tmp_path / "w")
    (tmp_path / "w").write_bytes(good.replace(bytes(16), bytes(15) + b"\1"))
    assert "damaged" in refusal(tmp_path / "w")
    with zipfile.ZipFile(tmp_path / "w", "w") as archive:
        archive.writestr("archive/data.pkl", program)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("archive/data.pkl", program)
    assert "same name" in refusal(tmp_path / "w")


def test_overlapping_entries(tmp_path: Path) -> None:
    """Many entries of an archive may name the same bytes, to be much larger than the file."""
    path = tmp_path / "w"
    path.write_bytes(in_zip(b"\x80\x02}.", {str(i): bytes(100_000) for i in range(2)}))
    with zipfile.ZipFile(path, "a") as archive:
        entry = archive.getinfo("archive/data/0")
        for i in range(2, 50):
            clone = zipfile.ZipInfo(f"archive/data/{i}")
            clone.header_offset, clone.CRC = entry.header_offset, entry.CRC
            clone.file_size = clone.compress_size = entry.file_size
            archive.filelist.append(clone)
            archive.NameToInfo[clone.filename] = clone
        archive.writestr("archive/version", "3")
    assert "overlap" in refusal(path)


def test_hostile_numpy_archives(tmp_path: Path) -> None:
    path, mark = tmp_path / "w", tmp_path / "mark"

    def write(members: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
        with zipfile.ZipFile(path, "w", method) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return path

    def array_file(descr: str, shape: str, data: bytes) -> bytes:
        header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data

    np.savez(tmp_path / "w.npz", a=_object_array(Calls(leave_a_mark, str(mark))))
    refusal(tmp_path / "w.npz")
    assert not mark.exists()
    good = array_file("'<f4'", "(2,)", bytes(8))
    assert_same(read_tensors(write({"a.npy": good})).tensors, {"a": torch.zeros(2)})
    for descr in ("'|O'", "'<U3'", "'<c8'", "'|V2'", "'<f16'", "'<M8[s]'", "[('a', '<f4')]", "5"):
        refusal(write({"a.npy": array_file(descr, "(2,)", bytes(8))}))
    for shape in (
        "(3,)",
        "(1,)",
        "(-1, -2)",
        "(10**99,)",
        "(2.0,)",
        "5",
        f"({2**40},)",
        "(2,)" * 99,
    ):
        refusal(write({"a.npy": array_file("'<f4'", shape, bytes(8))}))
    refusal(write({"a.npy": good, "evil.txt": b"text"}))
    refusal(write({"a.npy": b"not an array"}))
    refusal(write({"a.npy": good.replace(b"NUMPY\x01", b"NUMPY\x03")}))
    bomb = array_file("'|u1'", "(200000000,)", bytes(200_000_000))
    assert "zip bomb" in refusal(write({"a.npy": bomb}, zipfile.ZIP_DEFLATED))


@pytest.mark.parametrize("kind", KINDS)
def test_too_many_tensors(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tensors(tmp_path / "w", some_tensors(), kind)
    monkeypatch.setattr(readers, "MAX_TENSORS", 3)
    assert "at most 3" in refusal(tmp_path / "w")


def test_safe_globals_cannot_be_changed() -> None:
    for replacement in safe_globals.SAFE_GLOBALS.values():
        assert not isinstance(replacement, type)
        assert not hasattr(replacement, "__dict__")
        with pytest.raises((AttributeError, TypeError)):
            setattr(replacement, "call", print)  # noqa: B010


# --- writing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "failure", [OSError("disk full"), RuntimeError("torch"), KeyboardInterrupt()]
)
def test_a_failed_write_changes_nothing(
    tmp_path: Path, kind: str, failure: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "w"
    write_tensors(path, some_tensors(), kind)
    before = path.read_bytes()

    def half_written(temporary: Path, *_: Any, **__: Any) -> None:
        temporary.write_bytes(before[:10])
        raise failure

    def failing(*_: Any) -> None:
        raise failure

    expected = CheckpointError if isinstance(failure, Exception) else KeyboardInterrupt
    for target, name, replacement in (
        (writers.WRITERS, kind, half_written),
        (os, "fsync", failing),
        (os, "replace", failing),
    ):
        with monkeypatch.context() as patch:
            if isinstance(target, dict):
                patch.setitem(target, name, replacement)
            else:
                patch.setattr(target, name, replacement)
            with pytest.raises(expected) as caught:
                write_tensors(path, {"other": torch.zeros(3)}, kind)
        assert expected is KeyboardInterrupt or str(caught.value).startswith(str(path))
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", KINDS)
def test_written_files_have_the_usual_permissions(tmp_path: Path, kind: str) -> None:
    write_tensors(tmp_path / "w", some_tensors(), kind)
    (tmp_path / "usual").touch()
    assert (tmp_path / "w").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_what_cannot_be_written(tmp_path: Path) -> None:
    def message(path: Path, tensors: Any, kind: str = "safetensors") -> str:
        with pytest.raises(CheckpointError) as caught:
            write_tensors(path, tensors, kind)
        assert str(caught.value).startswith(str(path))
        return str(caught.value)

    good = {"a": torch.zeros(1)}
    assert "use safetensors" in message(tmp_path / "w", good, "safetensor")
    assert "cannot be written" in message(tmp_path / "absent" / "w", good)
    assert "cannot be written" in message(tmp_path, good)
    assert "cannot be written" in message(tmp_path / ("long" * 1000), good)
    assert "cannot be written" in message(tmp_path / "a\0b" / "w", good)
    (tmp_path / "file").touch()
    assert "cannot be written" in message(tmp_path / "file" / "w", good)
    (tmp_path / "file").unlink()
    assert "no tensors" in message(tmp_path / "w", {})
    assert "'a' is a int" in message(tmp_path / "w", {"a": 5})
    for tensor in (
        torch.zeros(1, dtype=torch.complex64),
        torch.zeros(1, device="meta"),
        torch.eye(2).to_sparse(),
    ):
        assert "'a'" in message(tmp_path / "w", {"a": tensor})
    assert list(tmp_path.iterdir()) == []


def test_the_same_tensors_give_the_same_bytes(tmp_path: Path) -> None:
    for kind in KINDS:
        write_tensors(tmp_path / "w", some_tensors(), kind)
        first = (tmp_path / "w").read_bytes()
        write_tensors(tmp_path / "w", some_tensors(), kind)
        assert (tmp_path / "w").read_bytes() == first, kind


def test_a_changed_byte_in_lzma(tmp_path: Path) -> None:
    """Zip archives may be compressed with LZMA, which has an error of its own."""
    path = tmp_path / "a.npz"
    buffer = io.BytesIO()
    np.save(buffer, np.arange(10_000, dtype=np.float32))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("a.npy", buffer.getvalue())
    assert read_tensors(path).tensors["a"][3] == 3
    content = bytearray(path.read_bytes())
    content[200:210] = bytes(10)
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"a\.npz: the file is damaged"):
        read_tensors(path)


def test_keys_with_the_same_hash(tmp_path: Path) -> None:
    """A dict of 100,000 integers that all have the hash 0 took minutes."""
    keys = (number * (2**61 - 1) for number in range(1, 100_000))
    items = b"".join(b"\x8a\x0a" + key.to_bytes(10, "little") + b"N" for key in keys)
    for program in (b"}(" + items + b"u.", b"\x8f(" + items.replace(b"N", b"") + b"\x90."):
        (tmp_path / "w").write_bytes(in_zip(b"\x80\x04" + program, {}))
        began = time.perf_counter()
        refusal(tmp_path / "w")
        assert time.perf_counter() - began < 10


@pytest.mark.parametrize("shape", [(0, 2**62, 2**62), (2**62, 2**62, 0), (2**62, 0)])
def test_a_tensor_of_nothing_with_an_impossible_shape(tmp_path: Path, shape: Any) -> None:
    """It was a RuntimeError of torch in the one or the other place."""
    lengths = b"".join(b"\x8a\x09" + length.to_bytes(9, "little") for length in shape)
    ones = b"K\1" * len(shape)
    storage = STORAGE + b"X\1\0\0\x000NK\4tQ"
    tensor = REBUILD + b"(" + storage + b"K\0(" + lengths + b"t(" + ones + b"t\x89}tR"
    program = b"\x80\x04}X\x0b\0\0\0norm.weight" + tensor + b"s."
    (tmp_path / "w").write_bytes(in_zip(program, {"0": bytes(16)}))
    refusal(tmp_path / "w")
    with pytest.raises(CheckpointError):
        vitreous.import_weights(vitreous.create("vit-ti/16", depth=1), tmp_path / "w", "timm")


class Scripted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 4)
        self.rest = torch.nn.Sequential(torch.nn.LayerNorm(4), torch.nn.Linear(4, 2, bias=False))
        self.token = torch.nn.Parameter(torch.randn(5))
        self.register_buffer("index", torch.arange(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rest(self.first(x)) + self.token.sum()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["script", "trace"])
def test_tensors_of_a_torchscript_program(tmp_path: Path, kind: str) -> None:
    """As OpenAI publishes CLIP: the tensors are read, and nothing of the program is run."""
    model = Scripted()
    script = torch.jit.script(model) if kind == "script" else torch.jit.trace(model, torch.ones(3))
    torch.jit.save(script, tmp_path / "program.pt")
    assert_same(read_tensors(tmp_path / "program.pt").tensors, dict(model.state_dict()))


def test_modules_of_a_torchscript_program_that_contain_each_other(tmp_path: Path) -> None:
    itself = b"\x80\x02c__torch__.M\nM\n)\x81q\x00}X\x01\x00\x00\x00ah\x00sb."
    with zipfile.ZipFile(tmp_path / "w", "w") as archive:
        archive.writestr("m/data.pkl", itself)
    assert "contain each other" in refusal(tmp_path / "w")
