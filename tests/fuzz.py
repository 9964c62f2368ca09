"""Damaged files of every kind must end in an answer or in a VitreousError, and cost little.

    python tests/fuzz.py --checkpoints 1000 --images 500 --annotations 300
    python tests/fuzz.py --exports 300 --hostile 600

Each case is a good file with a few bytes, or in text a few values, changed; a case's number is its
seed, so that `--only images 17` repeats one. Anything but an answer or a VitreousError counts as a
failure: a traceback, more than LIMIT bytes of memory, more than SLOW seconds, a file that was not
there before. Weights and exported files have checksums: an answer must be that of the good file.
Files of attackers have none; they call what they should not.
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from runs import write_run

import vitreous
from vitreous.data.formats import open_source
from vitreous.data.preprocess import Preprocess
from vitreous.errors import VitreousError
from vitreous.labels import LabelMap
from vitreous.predict import Predictor
from vitreous.run_folder import Run
from vitreous.tasks import task_class
from vitreous.tasks.data_check import check
from vitreous.weights.io.files import write_tensors

LIMIT = 3 << 30
SLOW = 20.0
BLACK = np.zeros((8, 8, 3), np.uint8)
FIELDS = {"image_size": 8, "patch": 4, "dim": 16, "depth": 1, "heads": 2, "classes": 3}
ODD_VALUES = (
    *(None, True, -1, 0, 1e308, -1e308, float("nan"), 2**63, 2**70, "", "x" * 300, "../../etc"),
    *("\x00", "\x1b[31m", [], {}, [[[[[]]]]], {"a": {"a": {}}}, "é\ud800", 1e-9, 10**9),
)
ODD_NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**62, 2**64 - 1)


# ---- damage


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """A few bytes changed, removed, repeated or inserted; or the end cut off."""
    data = bytearray(content)
    for _ in range(random.integers(1, 5)):
        if not data:
            break
        at = int(random.integers(len(data)))
        match random.integers(7):
            case 0:
                data[at] ^= 1 << int(random.integers(8))
            case 1:
                data[at] = int(random.integers(256))
            case 2:
                del data[at:]
            case 3:
                del data[at : at + int(random.integers(1, 40))]
            case 4:
                data[at:at] = data[at : at + int(random.integers(1, 200))]
            case 5:
                value = int(random.choice(np.array(ODD_NUMBERS, dtype=np.uint64)))
                size, order = int(random.choice([2, 4, 8])), str(random.choice(["little", "big"]))
                data[at : at + size] = (value % 2 ** (8 * size)).to_bytes(size, order)  # type: ignore[arg-type]
            case 6:
                data[at:at] = random.bytes(int(random.integers(1, 30)))
    return bytes(data)


def damaged_json(content: bytes, random: np.random.Generator, *, structure: bool = False) -> bytes:
    """Some values replaced, removed or renamed; every third time bytes as above, unless what is
    asked for is `structure`."""
    if not structure and random.integers(3) == 0:
        return damaged(content, random)
    values = json.loads(content)
    for _ in range(random.integers(1, 4)):
        place, holder = values, None
        while isinstance(place, dict | list) and place and (holder is None or random.integers(4)):
            key = list(place)[random.integers(len(place))] if isinstance(place, dict) else None
            key = int(random.integers(len(place))) if key is None else key
            holder, place = (place, key), place[key]
        if holder is None:
            continue
        owner, key = holder
        match random.integers(4):
            case 0 if isinstance(owner, dict):
                del owner[key]
            case 1 if isinstance(owner, dict):
                owner[f"{key}x"] = owner.pop(key)
            case 2 if isinstance(owner, list):
                owner.append(owner[key])
            case _:
                owner[key] = ODD_VALUES[random.integers(len(ODD_VALUES))]
    return json.dumps(values).encode("utf-8", "surrogatepass")


# ---- checkpoints


def checkpoints(folder: Path) -> list[tuple[str, Callable[[Path], object]]]:
    """Files of weights of all types, and a run folder's own."""
    torch.manual_seed(0)
    model = vitreous.create("vit", **FIELDS)
    state = model.state_dict()
    run = Run(_random_run(folder / "run"))
    google = vitreous.export_weights(model, format="google")
    for name, kind in (("a.safetensors",) * 2, ("a.npz", "npz"), ("a.pth", "pth")):
        write_tensors(folder / name, state, kind.rpartition(".")[2])
    write_tensors(
        folder / "a.pdparams", vitreous.export_weights(model, format="paddle"), "pdparams"
    )
    torch.save(state, folder / "legacy.pth", _use_new_zipfile_serialization=False)
    np.savez_compressed(folder / "google.npz", **google)
    _lzma_npz(folder / "lzma.npz", google)

    def load(path: Path) -> object:
        return vitreous.import_weights(vitreous.create("vit", **FIELDS), path)

    answer = vitreous.load(run.path)(BLACK).to_dict()

    def read(path: Path) -> object:
        return vitreous.load(path.parent)(BLACK).to_dict()

    def predict(path: Path) -> object:
        return same(read(path), answer)

    names = [
        "a.safetensors",
        "a.npz",
        "a.pth",
        "a.pdparams",
        "legacy.pth",
        "google.npz",
        "lzma.npz",
    ]
    return [(name, load) for name in names] + [
        ("run/config.json", read),
        ("run/model.safetensors", predict),
    ]


def same(answer: object, wanted: object) -> object:
    assert answer == wanted, "damage was not noticed, and changed the answer"
    return answer


def _lzma_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.save(buffer, np.asarray(array))
            archive.writestr(f"{name}.npy", buffer.getvalue())
    assert lzma


# ---- exported files

CODE = "__import__('os').system('touch burnt')"
TARGETS = (
    *("torch.ops.aten.from_file.default", "torch.ops.aten.from_file.out", "torch.os.system"),
    *("torch.load", "torch.ops.higher_order.cond", "torch.ops.aten.set_.source_Tensor"),
    *("torch.ops.load_library", "_operator.methodcaller", "#a:b", "math.factorial", CODE),
)
OPSETS = ("extension", "custom", "opset0", "opset99", "type_relaxed_opset", "../x.so", CODE)


def exports(folder: Path) -> list[tuple[str, Callable[[Path], object]]]:
    """The three formats, as they are written."""
    cases = []
    for name, path in _exported(folder).items():
        answer = vitreous.load(path)(BLACK).to_dict()

        def predict(changed: Path, path: Path = path, answer: object = answer) -> object:
            return same(vitreous.load(changed.with_suffix(path.suffix))(BLACK).to_dict(), answer)

        cases.append((name, predict))
    return cases


def _exported(folder: Path) -> dict[str, Path]:
    for name, content in _export().items():
        (folder / name).write_bytes(content)
    paths = {name: folder / name for name in ("model.onnx", "model.xml", "model.pt2")}
    return paths | {"model.bin": folder / "model.xml"}


@cache
def _export() -> dict[str, bytes]:
    """What takes longest, once."""
    with tempfile.TemporaryDirectory() as folder:
        run = _random_run(Path(folder, "run"))
        for suffix in (".onnx", ".xml", ".pt2"):
            vitreous.export(run, Path(folder, f"model{suffix}"), log=lambda text: None)
        return {path.name: path.read_bytes() for path in Path(folder).glob("model.*")}


def _random_run(folder: Path) -> Path:
    torch.manual_seed(0)
    model = vitreous.create("vit", **FIELDS)
    labels = LabelMap.of_names(["a", "b", "c"])
    return write_run(folder, model, labels, Preprocess(image_size=8)).path


def hostile(folder: Path) -> list[tuple[str, Callable[[Path], object]]]:
    """The same files without their checksums; see `damaged_graph`."""
    from running.hostile import onnx_file, openvino_file, torch_file

    whole = _exported(folder)
    bad = {name: folder / f"bad-{name}" for name in whole}
    torch_file(whole["model.pt2"], bad["model.pt2"])
    onnx_file(whole["model.onnx"], bad["model.onnx"], lambda model: None)
    openvino_file(whole["model.xml"], bad["model.xml"], lambda text: text)

    def predict(path: Path) -> object:
        return vitreous.load(path)(BLACK).to_dict()

    names = ("model.pt2", "model.onnx", "model.pt2", "model.xml")
    return [(bad[name].name, predict) for name in names]


def damaged_graph(path: Path, random: np.random.Generator) -> None:
    """A file that calls what it should not, or says something odd, in place of the good one."""
    from running.hostile import onnx_file, openvino_file, torch_file

    def change_program(program: dict[str, object]) -> None:
        changed = json.loads(damaged_json(json.dumps(program).encode(), random, structure=True))
        program.clear()
        program |= changed
        nodes = _inside(program, "graph_module", "graph", "nodes")
        if isinstance(nodes, list) and nodes and random.integers(2):
            node = nodes[random.integers(len(nodes))]
            if isinstance(node, dict):
                node["target"] = TARGETS[random.integers(len(TARGETS))]
        if random.integers(4) == 0:
            program["guards_code"] = [CODE]

    def change_onnx(model: object) -> None:
        nodes = model.graph.node  # type: ignore[attr-defined]
        node = nodes[random.integers(len(nodes))]
        match random.integers(4):
            case 0:
                node.domain = str(random.choice(["com.microsoft", "own", "org.pytorch.aten"]))
            case 1:
                node.op_type = str(random.choice(["EPContext", "PyOp", "ATen", "Loop", "If", "X"]))
            case 2:
                tensor = model.graph.initializer[0]  # type: ignore[attr-defined]
                tensor.data_location = 1
                tensor.external_data.add(key="location", value="../../../../etc/passwd")
            case 3:
                nodes.remove(node)

    def change_xml(text: str) -> str:
        places = [found.start(1) for found in re.finditer(r'version="(opset\d+)"', text)]
        at = places[random.integers(len(places))]
        end = text.index('"', at)
        odd = OPSETS[random.integers(len(OPSETS))]
        return text[:at] + odd.replace('"', "") + text[end:]

    match path.suffix:
        case ".pt2":
            torch_file(path, path, change_program)
        case ".onnx":
            onnx_file(path, path, change_onnx)
        case ".xml":
            openvino_file(path, path, change_xml)


def _inside(values: object, *keys: str) -> object:
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


# ---- images


def images(folder: Path) -> list[tuple[str, Callable[[Path], object]]]:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (13, 17, 4), np.uint8)
    colour, gray = Image.fromarray(pixels[..., :3]), Image.fromarray(pixels[..., 0])
    palette = colour.convert("P")
    wide = Image.fromarray(random.integers(0, 65536, (13, 17), np.uint16))
    for name, image, options in (
        ("c.png", colour, {}),
        ("g.png", gray, {}),
        ("p.png", palette, {}),
        ("w.png", wide, {}),
        ("a.png", Image.fromarray(pixels), {}),
        ("c.jpg", colour, {"quality": 90, "exif": _rotated()}),
        ("m.jpg", colour.convert("CMYK"), {}),
        ("c.webp", colour, {}),
        ("p.gif", palette, {"save_all": True, "append_images": [palette]}),
        ("c.bmp", colour, {}),
        ("c.tiff", colour, {"compression": "tiff_lzw"}),
        ("w.tif", wide, {}),
    ):
        image.save(folder / name, **options)
    torch.manual_seed(0)
    fields = {**FIELDS, "pool": "mean"}
    task = task_class("classify")(LabelMap.of_names(["a", "b", "c"]))
    predictor = Predictor(vitreous.create("vit", **fields), Preprocess(image_size=8), task)
    return [
        (path.name, lambda path: predictor(str(path)).to_dict())
        for path in sorted(folder.iterdir())
    ]


def _rotated() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif.tobytes()


# ---- annotations


def annotations(folder: Path) -> list[tuple[str, Callable[[Path], object]]]:
    """The annotation files of every format, with two images each."""
    random = np.random.default_rng(0)
    names = ("train", "val")

    def picture(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (10, 12, 3), np.uint8)).save(path)

    cases: list[tuple[str, Callable[[Path], object]]] = []

    def case(name: str, text: str | bytes, data: str, **options: object) -> None:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)

        def look(changed: Path) -> object:
            at = changed.parents[len(Path(name).parts) - 1] / data
            return check(open_source(str(at), **options), workers=1).to_dict()  # type: ignore[arg-type]

        cases.append((name, look))

    for number in range(4):
        picture(folder / f"csv/{number}.png")
        for data in ("coco/images", "yolo/images/train", "voc/JPEGImages"):
            picture(folder / data / f"{number}.png")
    rows = "".join(f"{n}.png,{'ab'[n % 2]},{names[n // 3]}\n" for n in range(4))
    case("csv/one.csv", "path,label,split\n" + rows, "csv/one.csv")
    case(
        "csv/many.csv",
        "path,labels\n" + "".join(f'{n}.png,"a;b"\n' for n in range(4)),
        "csv/many.csv",
    )
    objects = [
        {
            **{"id": n, "image_id": n, "category_id": 3 + n % 2, "bbox": [1, 2, 5, 6], "area": 30},
            **{"iscrowd": 0, "segmentation": [[1, 2, 6, 2, 6, 8, 1, 8]]},
        }
        for n in range(4)
    ]
    files = [{"id": n, "file_name": f"{n}.png", "height": 10, "width": 12} for n in range(4)]
    kinds = [{"id": 3, "name": "cat"}, {"id": 4, "name": "dog"}]
    coco = {"images": files, "annotations": objects, "categories": kinds}
    for name, truth in (("coco/images/boxes.json", "boxes"), ("coco/images/masks.json", "mask")):
        case(name, json.dumps(coco), name, truth=truth)
    case("yolo/data.yaml", "train: images/train\nnames:\n  0: cat\n  1: dog\n", "yolo")
    for n in range(4):
        case(f"yolo/labels/train/{n}.txt", f"{n % 2} 0.5 0.5 0.4 0.4\n1 .2 .2 .1 .1\n", "yolo")
        case(f"voc/Annotations/{n}.xml", VOC.format(n=n, name="ab"[n % 2]), "voc")
    return cases


VOC = """<annotation><filename>{n}.png</filename>
<size><width>12</width><height>10</height><depth>3</depth></size>
<object><name>{name}</name><difficult>0</difficult>
<bndbox><xmin>2</xmin><ymin>3</ymin><xmax>8</xmax><ymax>9</ymax></bndbox></object></annotation>"""


# ---- all of them

KINDS = {
    "checkpoints": checkpoints,
    "images": images,
    "annotations": annotations,
    "exports": exports,
    "hostile": hostile,
}
SEEDS = ("annotations", "checkpoints", "images", "exports", "hostile")


class Fuzz:
    """The good files of one kind, and what to do with a damaged one."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.good, self.bad = kind, folder / "good", folder / "bad"
        self.good.mkdir(parents=True)
        self.cases = KINDS[kind](self.good)
        self.refused = 0

    def run(self, number: int) -> str | None:
        """None where all is well, else what happened."""
        random = np.random.default_rng([SEEDS.index(self.kind), number])
        name, use = self.cases[number % len(self.cases)]
        shutil.rmtree(self.bad, ignore_errors=True)
        shutil.copytree(self.good, self.bad)
        path = self.bad / name
        content = (self.good / name).read_bytes()
        if self.kind == "hostile":
            damaged_graph(path, random)
        else:
            change = damaged_json if name.endswith(".json") else damaged
            path.write_bytes(change(content, random))
        before = _listed(self.bad)
        began = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                json.dumps(use(path), allow_nan=False, default=str)
        except VitreousError:
            self.refused += 1
        except BaseException:
            return f"{self.kind} {number} ({name}):\n{traceback.format_exc(limit=-4)}"
        if (spent := time.process_time() - began) > SLOW:
            return f"{self.kind} {number} ({name}): {spent:.0f} s"
        if _listed(self.bad) != before:
            return f"{self.kind} {number} ({name}): a file was written"
        return None


def _listed(folder: Path) -> list[Path]:
    """Of it and of the working folder."""
    return sorted([*folder.rglob("*"), *Path().iterdir()])


def limit_memory() -> None:
    """More than LIMIT on top of what torch has taken by now is a MemoryError."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT, resource.RLIM_INFINITY))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for kind in KINDS:
        parser.add_argument(f"--{kind}", type=int, default=0)
    parser.add_argument("--only", nargs=2, metavar=("KIND", "NUMBER"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in KINDS:
            numbers = list(range(getattr(options, kind)))
            if options.only:
                numbers = [int(options.only[1])] if options.only[0] == kind else []
            if not numbers:
                continue
            fuzz = Fuzz(kind, Path(folder, kind))
            limit_memory()
            for number in numbers:
                if (failure := fuzz.run(number)) is not None:
                    failures += 1
                    print(failure, flush=True)
            print(f"{kind}: {len(numbers)} cases, {fuzz.refused} refused", flush=True)
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
