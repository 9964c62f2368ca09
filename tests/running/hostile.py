"""Exported files that were changed: what their makers did not want, and what attackers do."""

import json
import zipfile

import onnx

from vitreous.engines.graph import KEY, NOTE_FILE

PROGRAM = "models/model.json"


class Fuse:
    """A pickle that writes a file."""

    def __reduce__(self):
        return open, ("burnt", "w")


def entries_of(file):
    """The parts of a .pt2 by name."""
    with zipfile.ZipFile(file) as archive:
        return {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}


def without_checksum(text):
    return json.dumps({**json.loads(text), "sha256": ""})


def torch_file(file, path, change=lambda program: None, **parts):
    """A copy of a .pt2 whose graph is changed, without a checksum; `parts` are added or replaced
    (with two underscores for a slash)."""
    entries = entries_of(file)
    program = json.loads(entries[PROGRAM])
    change(program)
    entries[PROGRAM] = json.dumps(program).encode()
    note = f"extra/{NOTE_FILE}"
    entries[note] = without_checksum(entries[note]).encode()
    entries |= {name.replace("__", "/"): data for name, data in parts.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(f"model/{name}", data)
    return path


def argument(name, **value):
    return {"name": name, "arg": value, "kind": 1}


def calling(target, *inputs, output="extra", place=0):
    """A change that adds a call to a graph; nobody uses what it gives."""

    def change(program):
        graph = program["graph_module"]["graph"]
        node = {
            "target": target,
            "inputs": list(inputs),
            "outputs": [{"as_tensor": {"name": output}}],
            "metadata": {},
            "is_hop_single_tensor_return": None,
            "name": output,
        }
        graph["nodes"].insert(place, node)
        graph["tensor_values"][output] = next(iter(graph["tensor_values"].values()))

    return change


def from_file(path):
    """A change that maps a file of 4096 bytes, which is made if it is not there."""
    inputs = [
        argument("filename", as_string=str(path)),
        argument("shared", as_bool=True),
        argument("size", as_int=4096),
    ]
    return calling("torch.ops.aten.from_file.default", *inputs)


def onnx_file(file, path, change):
    """A copy of an .onnx that is changed, without a checksum."""
    model = onnx.load(file)
    for each in model.metadata_props:
        if each.key == KEY:
            each.value = without_checksum(each.value)
    change(model)
    path.write_bytes(model.SerializeToString())
    return path


def openvino_file(file, path, change):
    """A copy of an .xml whose text is changed, without a checksum."""
    digest = json.loads(note_of(file))["sha256"]
    text = file.read_text(encoding="utf-8").replace(digest, "")
    path.write_text(change(text), encoding="utf-8")
    path.with_suffix(".bin").write_bytes(file.with_suffix(".bin").read_bytes())
    return path


def note_of(file):
    from vitreous.engines.file_checks import read_openvino

    return read_openvino(file).find(f"rt_info/{KEY}").get("value")
