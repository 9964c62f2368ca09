"""Exported files from elsewhere: whatever they ask for, none runs code or touches a file."""

import io
import operator
import os
import pickle
import threading
import zipfile
from pathlib import Path

import onnx
import pytest
import torch
from PIL import Image
from running import hostile
from running.hostile import Fuse, argument, calling
from runs import vit_file
from torch import nn

import vitreous
from vitreous.data.preprocess import Preprocess
from vitreous.deploy.export import Traced, traced
from vitreous.deploy.rewrite import rewrite
from vitreous.engines.torch_graph import operator_of
from vitreous.errors import ConfigError


@pytest.fixture(scope="module")
def files():
    """One of each format, by suffix."""
    return {suffix: vit_file(suffix) for suffix in (".onnx", ".xml", ".pt2")}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """The working folder, where an attack writes."""
    monkeypatch.chdir(tmp_path)
    yield
    assert not Path("burnt").exists()


def predicted(path):
    return vitreous.load(path)(Image.new("RGB", (64, 64), "olive")).to_dict()


def poison():
    file = io.BytesIO()
    torch.save((Fuse(), {}), file)
    return file.getvalue()


def test_a_graph_that_maps_a_file_is_refused(files, tmp_path):
    """torch itself runs it, and the file is there."""
    bad = hostile.torch_file(files[".pt2"], tmp_path / "bad.pt2", hostile.from_file("burnt"))
    with pytest.raises(ConfigError, match=r"calls 'torch\.ops\.aten\.from_file\.default', which"):
        predicted(bad)
    assert not Path("burnt").exists()
    torch.export.load(bad).module()(torch.zeros(2, 3, 64, 64))
    assert Path("burnt").stat().st_size
    Path("burnt").unlink()


OPERATORS = """
torch.ops.aten.from_file.out torch.ops.aten.from_file torch.ops.aten.add.out
torch.ops.aten.set_.source_Tensor torch.ops.aten.as_strided.default
torch.ops.aten.empty.memory_format torch.ops.aten.add.__class__ torch.ops.aten.__class__.mro
torch.ops.aten.to.__init__ torch.ops.prims.copy_to.default torch.ops.higher_order.cond
torch.ops.load_library torch.ops.profiler._record_function_enter.default torch.os.system
torch.load torch.save torch.hub.load torch.serialization.os.remove
torch.utils.cpp_extension.load_inline _operator.methodcaller _operator.attrgetter
_operator.setitem math.factorial #namespace:operator builtins.eval
"""


@pytest.mark.parametrize("target", [*OPERATORS.split(), ""])
def test_no_other_operator_is_called(files, tmp_path, target):
    change = calling(target, argument("self", as_string="touch burnt"))
    with pytest.raises(ConfigError, match="not one of the tensor functions"):
        predicted(hostile.torch_file(files[".pt2"], tmp_path / "bad.pt2", change))


def test_a_graph_inside_of_a_graph_is_refused(files, tmp_path):
    """By the name of what calls it; and where what calls it has an allowed name, as an argument."""

    def change(target):
        def nested(program):
            outer = program["graph_module"]["graph"]
            inner = {**outer, "nodes": []}
            calling("torch.ops.aten.from_file.default")({"graph_module": {"graph": inner}})
            graph = argument("self", as_graph={"name": "inside", "graph": inner})
            calling(target, graph)(program)

        return nested

    for target, why in (
        ("torch.ops.higher_order.wrap_with_set_grad_enabled", "not one of the tensor functions"),
        ("torch.ops.aten.relu.default", "gives an operator 'as_graph'"),
    ):
        with pytest.raises(ConfigError, match=why):
            predicted(hostile.torch_file(files[".pt2"], tmp_path / "a.pt2", change(target)))


OTHER_PARTS = """
data__aotinductor__model__code.so data__constants__opaque_obj_0 data__constants__custom_obj_0
data__weights__model.pt models__other.json serialized_exported_program.json extra__..__..__x
"""


@pytest.mark.parametrize("part", OTHER_PARTS.split())
def test_other_parts_of_an_archive_are_refused(files, tmp_path, part):
    bad = hostile.torch_file(files[".pt2"], tmp_path / "bad.pt2", **{part: pickle.dumps(Fuse())})
    with pytest.raises(ConfigError, match="which no export of Vitreous has: it is not opened"):
        predicted(bad)


def test_two_parts_of_one_name_are_refused(files, tmp_path):
    bad = hostile.torch_file(files[".pt2"], tmp_path / "bad.pt2")
    with zipfile.ZipFile(bad, "a") as archive:
        archive.writestr("other/models/model.json", b"{}")
    with pytest.raises(ConfigError, match="twice"):
        predicted(bad)


def test_pickled_weights_are_refused(files, tmp_path):
    config = "data/weights/model_weights_config.json"
    text = hostile.entries_of(files[".pt2"])[config].decode()
    parts = {
        config.replace("/", "__"): text.replace('"use_pickle": false', '"use_pickle": true', 1),
        "data__weights__weight_0": poison(),
    }
    with pytest.raises(ConfigError, match="is a pickle, which can run code"):
        predicted(hostile.torch_file(files[".pt2"], tmp_path / "bad.pt2", **parts))


CODE = "__import__('os').system('touch burnt')"


def _guards(program):
    program["guards_code"] = [CODE]


def _shapes(program):
    for meta in program["graph_module"]["graph"]["tensor_values"].values():
        meta["sizes"] = [
            {"as_expr": {"expr_str": CODE, "hint": None}} if "as_expr" in each else each
            for each in meta["sizes"]
        ]


def _ranges(program):
    program["range_constraints"] = {CODE: {"min_val": 1, "max_val": None}}


def _trees(program):
    for entry in program["graph_module"]["module_call_graph"]:
        if entry["signature"]:
            entry["signature"] |= {"in_spec": CODE, "forward_arg_names": [f"x={CODE}"]}


def _metadata(program):
    for node in program["graph_module"]["graph"]["nodes"]:
        node["metadata"] = {"source_fn_stack": "a,torch.os.system", "stack_trace": CODE}


@pytest.mark.parametrize("change", [_guards, _shapes, _ranges, _trees, _metadata])
def test_what_torch_would_evaluate_is_not_read(files, tmp_path, change):
    bad = hostile.torch_file(files[".pt2"], tmp_path / "bad.pt2", change)
    assert predicted(bad) == predicted(files[".pt2"])


def test_names_are_only_names(files, tmp_path):
    """torch makes source code of them."""
    name, code = "images", f"images=({CODE})"
    entries = hostile.entries_of(files[".pt2"])
    program = entries[hostile.PROGRAM].decode().replace(f'"name": "{name}"', f'"name": "{code}"')
    program = program.replace(f'"{name}": {{"dtype"', f'"{code}": {{"dtype"')
    parts = {hostile.PROGRAM.replace("/", "__"): program}
    bad = hostile.torch_file(files[".pt2"], tmp_path / "bad.pt2", **parts)
    assert predicted(bad) == predicted(files[".pt2"])


def test_threads_that_load_at_once_run_no_pickle(files, tmp_path):
    """Of a file whose sample inputs are a pickle that writes a file; what other threads load, and
    the environment, stay as they are."""
    sample = {"data__sample_inputs__model.pt": poison()}
    bad = hostile.torch_file(files[".pt2"], tmp_path / "bad.pt2", **sample)
    before, wanted, failed = dict(os.environ), predicted(files[".pt2"]), []
    own = io.BytesIO()
    torch.save({"own": nn.Linear(2, 2)}, own)

    def load(path):
        failed.extend(path for _ in range(4) if predicted(path) != wanted)

    def load_own():
        for _ in range(40):
            torch.load(io.BytesIO(own.getvalue()), weights_only=False)

    threads = [threading.Thread(target=load, args=(path,)) for path in (bad, files[".pt2"]) * 3]
    threads.append(threading.Thread(target=load_own))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert dict(os.environ) == before


# ---- what exports of ours call

TINY = {"image_size": 32, "depth": 2, "classes": 3}
FAMILIES = {
    "vit": {**TINY, "dim": 24, "heads": 2, "patch": 8},
    "deit-ti/16": TINY,
    "cpvt-ti/16": TINY,
    "vit-c-mini/8": TINY,
    "dinov2-s/14": {**TINY, "image_size": 28},
    "dinov3-s+/16": TINY,
    "eva02-ti/14": {**TINY, "image_size": 28},
    "swin": {"image_size": 32, "dim": 24, "depths": (1, 1), "heads": (1, 2), "window": 4},
    "resnet-18": {"image_size": 32},
}


@pytest.mark.parametrize("name", FAMILIES)
def test_what_models_compute_is_allowed(name):
    model = vitreous.create(name, **FAMILIES[name]).eval()
    rewrite(model)
    size = model.own_size()
    program = traced(Traced(model, None).eval(), Preprocess(size), "float32", any_size=False)
    for node in program.graph.nodes:
        if node.op == "call_function" and node.target is not operator.getitem:
            overload = isinstance(node.target, torch._ops.OpOverload)
            own = f"{node.target.__module__}.{node.target.__name__}"
            operator_of(f"torch.ops.{node.target}" if overload else own, Path("model.pt2"))


# ---- ONNX and OpenVINO


def _custom(model):
    model.graph.node.append(
        onnx.helper.make_node("EPContext", [], ["x"], domain="com.microsoft", ep_cache_context="/x")
    )


def _function(model):
    made = onnx.helper.make_function("own", "Sum2", ["a"], ["b"], [], [])
    model.functions.append(made)


def _loop(model):
    body = onnx.helper.make_graph([], "body", [], [])
    model.graph.node.append(onnx.helper.make_node("Loop", ["", ""], ["x"], body=body))


def _outside(model):
    tensor = model.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    tensor.external_data.add(key="location", value="/etc/passwd")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_custom, r"calls 'com\.microsoft\.EPContext', which no export of Vitreous does"),
        (_function, "defines the function 'Sum2', which"),
        (_loop, "has a graph inside of 'Loop', which"),
        (_outside, "refers to '/etc/passwd', outside of its folder"),
    ],
)
def test_onnx_files_hold_standard_operations_alone(files, tmp_path, change, why):
    with pytest.raises(ConfigError, match=why):
        predicted(hostile.onnx_file(files[".onnx"], tmp_path / "bad.onnx", change))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda text: text.replace('"opset1"', '"extension"', 1),
            r"calls 'extension\.Parameter', which no export of Vitreous does",
        ),
        (
            lambda text: text.replace("</layer>", "<body></body></layer>", 1),
            "has a graph inside of 'Parameter', which",
        ),
        (
            lambda text: text.replace(
                "<net ", '<!DOCTYPE net [<!ENTITY x SYSTEM "file:///etc/passwd">]><net ', 1
            ),
            "cannot be opened",
        ),
    ],
)
def test_openvino_files_hold_standard_operations_alone(files, tmp_path, change, why):
    with pytest.raises(ConfigError, match=why):
        predicted(hostile.openvino_file(files[".xml"], tmp_path / "bad.xml", change))


def test_files_without_a_checksum_are_opened(files, tmp_path):
    """Those of earlier versions."""
    old = [
        hostile.torch_file(files[".pt2"], tmp_path / "old.pt2"),
        hostile.onnx_file(files[".onnx"], tmp_path / "old.onnx", lambda model: None),
        hostile.openvino_file(files[".xml"], tmp_path / "old.xml", lambda text: text),
    ]
    for path in old:
        assert predicted(path) == predicted(files[path.suffix])
