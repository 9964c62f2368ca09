"""Engines: the same predictions, exported once, and the fastest of them by measurement."""

import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from runs import vit_file

import vitreous
from vitreous.cli.main import main
from vitreous.deploy import engine as engines
from vitreous.errors import ConfigError
from vitreous.import_run import open_run
from vitreous.inference import InferenceOptions


def image():
    return torch.randint(256, (3, 64, 64), generator=torch.Generator().manual_seed(0)).byte()


def load(run, said=None, **options):
    return vitreous.load(run, log=(lambda text: None) if said is None else said.append, **options)


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_an_engine_is_exported_once(run, cache, name):
    said = []
    wanted = load(run)(image())
    for _ in range(2):
        predictor = load(run, said, engine=name)
        assert predictor.engine.name == name
        assert predictor(image()).score == pytest.approx(wanted.score, abs=1e-5)
    assert said == [f"exporting {run} for {name}, once"]


def test_auto_takes_the_fastest_and_measures_once(run, cache, monkeypatch):
    taken, asked = {"torch": 0.3, "onnxruntime": 0.2, "openvino": 0.4}, []

    def seconds(predictor, images):
        asked.append(predictor.engine.name)
        return taken[predictor.engine.name]

    monkeypatch.setattr(engines, "_seconds", seconds)
    said = []
    assert load(run, said, engine="auto").engine.name == "onnxruntime"
    assert "engine: onnxruntime, the fastest here" in said[-1]
    assert asked[:6] == ["torch", "onnxruntime", "openvino"] * 2  # they take turns
    asked.clear()
    assert load(run, said, engine="auto").engine.name == "onnxruntime"
    assert not asked


def test_what_cannot_be_exported_is_left_out(run, cache, monkeypatch):
    def fail(*given):
        raise ConfigError("no such graph")

    monkeypatch.setattr(engines, "cached_file", fail)
    said = []
    assert load(run, said, engine="auto").engine.name == "torch"
    assert "onnxruntime is left out: no such graph" in said


def test_other_weights_are_another_file(run, cache, tmp_path):
    """A file of the cache is never that of weights that have changed."""
    from vitreous.run_folder import Run

    own = Run(shutil.copytree(run, tmp_path / "run"))
    first = engines._place(open_run(own.path))
    model = own.create_model()
    own.write_weights(model, model.state_dict())
    assert engines._place(open_run(own.path)) != first


def test_engines_that_are_not_there(run, cache):
    with pytest.raises(ConfigError, match="engine = 'tensorrt'"):
        load(run, engine="tensorrt")
    with pytest.raises(ConfigError, match="runs on the CPU"):
        load(run, engine="openvino", device="cuda")
    file = vit_file(".pt2")
    with pytest.raises(ConfigError, match=r"'openvino' cannot run .*model\.pt2: use torch"):
        load(file, engine="openvino")
    assert load(file, engine="auto").engine.name == "torch"


def test_commands_have_it(run, cache, tmp_path, capsys):
    from PIL import Image

    Image.fromarray(image().permute(1, 2, 0).numpy()).save(tmp_path / "a.png")
    said = []
    for engine in ("torch", "onnxruntime"):
        words = [str(run), str(tmp_path / "a.png"), f"--engine={engine}"]
        assert main(["predict", *words]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]


def test_openvino_has_a_graph_for_a_length_that_comes_again(run, cache):
    """The outputs are the same in parts and from several threads; more lengths get none."""
    engine = load(run, engine="openvino", threads=2).engine
    exact, runner = load(run).engine, engine.graph.compute
    images = torch.randn(7, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    for count in (4, 4, 4, 3, 3, 1, 1):
        torch.testing.assert_close(engine(images[:count]), exact(images[:count]), atol=1e-4, rtol=0)
    assert {count: own.parts for count, own in runner._own.items()} == {4: 2, 3: 1}
    with ThreadPoolExecutor(4) as pool:
        pairs = [images[[each, each + 1, each + 2, each + 3]] for each in (0, 1, 2, 3)] * 3
        for wanted, found in zip(map(exact, pairs), pool.map(engine, pairs), strict=True):
            torch.testing.assert_close(found, wanted, atol=1e-4, rtol=0)


HANDLED = """
import faulthandler, signal
import openvino
from vitreous.engines.graph import openvino_core
from vitreous.engines.openvino import keep_signal_stack

faulthandler.enable()  # with a stack for handlers, as pytest has one
openvino_core()
others = []
with keep_signal_stack():  # as NNCF does, in the order in which it goes wrong
    for _ in range(2):
        others.append(openvino.Core())
        others[-1].get_property("CPU", "FULL_DEVICE_NAME")
while others:
    del others[0]
openvino_core.cache_clear()
signal.signal(signal.SIGTERM, lambda *given: print("handled"))
signal.raise_signal(signal.SIGTERM)
"""


def test_signals_are_handled_behind_openvino():
    """A segmentation fault, if OpenVINO's stack for signal handlers were kept: it frees it."""
    done = subprocess.run([sys.executable, "-c", HANDLED], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr


WAY = engines.Way("onnxruntime", "float32")


def test_of_several_that_need_a_file_one_exports_it(run, cache, monkeypatch):
    """Workers of a server start at the same time."""
    made, export = [], engines.export

    def noted(*args, **options):
        made.append(args)
        time.sleep(0.2)  # the others are there now
        return export(*args, **options)

    monkeypatch.setattr(engines, "export", noted)
    folder, waited = open_run(run), []
    with ThreadPoolExecutor(3) as pool:
        calls = [pool.submit(engines.cached_file, folder, WAY, waited.append) for _ in range(3)]
    assert len({call.result() for call in calls}) == 1
    assert len(made) == 1
    assert sum("waiting for it" in text for text in waited) == 2


def test_a_server_loads_models_before_its_workers_as_they_will(run):
    from vitreous.serve import served, server
    from vitreous.serve.settings import Settings

    def load(opened, **options):
        calls.append((opened.path, options, torch.get_num_threads()))
        raise InterruptedError

    calls, before = [], torch.get_num_threads()
    inference = InferenceOptions(engine="openvino", precision="int8")
    settings = Settings({"a": str(run)}, inference, workers=2, threads=1)
    try:
        with pytest.raises(InterruptedError):
            server._check_models(settings, load)
        server.set_threads(settings)
        with pytest.raises(InterruptedError):
            served.loader(settings, load)(None, None)
    finally:
        torch.set_num_threads(before)
    assert calls[0] == calls[1]
    assert calls[0][1]["precision"] == "int8"
