"""`vitreous` commands in processes of their own, which a test may kill.

They are forks of one process that has imported everything: a new interpreter would take seconds,
most of them for torch.
"""

import multiprocessing
import os
import shutil
import signal
import socket
import sys
from pathlib import Path

from train.undrawn import undrawn

from vitreous.cli.main import main

FORKS = multiprocessing.get_context("forkserver")
IMPORTED = """vitreous.api vitreous.cli.train vitreous.train.run vitreous.data.formats
vitreous.pages.report torchvision.transforms.v2 torch.distributed.fsdp sklearn.metrics
torch.distributed.launcher.api matplotlib.pyplot faster_coco_eval"""
FORKS.set_forkserver_preload(IMPORTED.split())


def start(words, output, dies_at=0, environment=()):
    """The command, its prints going to the file `output`. With `dies_at` it kills itself, by
    SIGKILL, at that call which changes the disk."""
    given = ([*map(str, words)], str(output), dies_at, dict(environment))
    process = FORKS.Process(target=_run, args=given)
    process.start()
    return process


def start_ranks(words, output, count=2):
    """The command as torchrun starts it, on `count` processes."""
    return [
        start(words, output.with_suffix(f".{rank}"), environment=environment)
        for rank, environment in enumerate(environments(count))
    ]


def start_elastic(words, output, folder, count=2):
    """The command in `folder` as torchrun has it, which starts all ranks again when one dies. Each
    of them writes its process id into `rank-NUMBER`."""
    process = FORKS.Process(target=_launch, args=([*map(str, words)], output, folder, count))
    process.start()
    return process


def _launch(words, output, folder, count):
    # by functions: torchrun's own command would import torch for each rank and each start
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    os.chdir(folder)
    _print_to(output)
    os.environ["OMP_NUM_THREADS"] = "1"
    alone = {"min_nodes": 1, "max_nodes": 1, "rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0"}
    config = LaunchConfig(**alone, nproc_per_node=count, run_id="test", start_method="fork")
    elastic_launch(config, _rank)(words)


def _rank(words):
    Path(f"rank-{os.environ['RANK']}").write_text(str(os.getpid()))
    with undrawn():
        assert main(words) == 0


def in_ranks(function, *arguments, count=2):
    """function(*arguments), on `count` processes as torchrun starts them."""
    processes = [
        FORKS.Process(target=_call, args=(environment, function, arguments))
        for environment in environments(count)
    ]
    for process in processes:
        process.start()
    assert [end(process) for process in processes] == [0] * count


def _call(environment, function, arguments):
    os.environ.update(environment)
    function(*arguments)


def environments(count):
    """What torchrun tells each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_PORT": port}
    shared |= {"MASTER_ADDR": "127.0.0.1", "OMP_NUM_THREADS": "1"}
    return [{**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def end(process, timeout=300):
    """Its exit code, once it has ended; -9 after a SIGKILL."""
    process.join(timeout)
    assert process.exitcode is not None, f"still running after {timeout} seconds"
    return process.exitcode


def _run(words, output, dies_at, environment):
    # As for people: workers that load data are forks too, and end when this process is killed.
    multiprocessing.set_start_method("fork", force=True)
    _print_to(output)
    os.environ.update(environment)
    calls = []
    for module, name in ((os, "replace"), (os, "fsync"), (shutil, "rmtree")):
        setattr(module, name, _deadly(getattr(module, name), calls, dies_at))
    with undrawn():
        sys.exit(main(words))


def _print_to(output):
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)


def _deadly(function, calls, dies_at):
    def call(*args, **kwargs):
        calls.append(function)
        if len(calls) == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return call
