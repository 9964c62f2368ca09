"""How many threads compute, and that they do not keep cores busy while they wait."""

import os
import subprocess
import sys

import pytest
import torch
from train.tiny import train

from vitreous.errors import ConfigError
from vitreous.train import threads
from vitreous.train.recipe import Recipe
from vitreous.train.threads import available_cores, computing_threads
from vitreous.train.trainer import Trainer

FIRST_WORDS = """
import os, sys
from vitreous.cli import main
def module_of(command):
    print("torch" in sys.modules, os.environ.get("GOMP_SPINCOUNT"))
    raise SystemExit
main.module_of = module_of
main.main([sys.argv[1]])
"""


@pytest.mark.parametrize(
    ("command", "environment", "spins"),
    [
        ("train", {}, "1000"),
        ("pretrain", {}, "1000"),
        ("predict", {}, "None"),
        ("train", {"OMP_WAIT_POLICY": "active"}, "None"),
        ("train", {"GOMP_SPINCOUNT": "9"}, "9"),
    ],
)
def test_threads_sleep_when_they_wait_for_long(command, environment, spins):
    """Decided before torch is imported, and left alone where the user has decided."""
    usual = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "KMP_"))}
    words = [sys.executable, "-c", FIRST_WORDS, command]
    done = subprocess.run(words, env=usual | environment, capture_output=True, text=True)
    assert done.stdout.split() == ["False", spins]


def test_as_many_as_are_asked_for(tmp_path, monkeypatch):
    """A run that is resumed with another number says so."""
    counts, before = [], torch.get_num_threads()
    monkeypatch.setattr(torch, "set_num_threads", counts.append)
    monkeypatch.setattr(Trainer, "step", lambda *given: 1.0)
    said = [
        train(tmp_path / "run", "--epochs=1", "--threads=3").stderr,
        train(tmp_path / "run", "--resume", "--epochs=2", "--threads=1").stderr,
        train(tmp_path / "run", "--resume", "--epochs=3", "--threads=1").stderr,
    ]
    assert counts == [3, before, 1, before, 1, before]
    assert ["threads: 1, and 3 before: sums" in each for each in said] == [False, True, False]
    with pytest.raises(ConfigError, match="threads = 0: expected at least 1"):
        Recipe(threads=0)


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000"}, 8),
        ({"cpu.max": "250000 100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 1),
    ],
)
def test_a_container_has_the_cores_of_its_quota(tmp_path, monkeypatch, files, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    monkeypatch.setattr(threads, "CGROUPS", tmp_path)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_cores() == cores


def test_the_environment_decides_before_the_quota(monkeypatch):
    monkeypatch.setattr(threads, "available_cores", lambda: 1)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        with computing_threads(None) as count:
            assert count == 2
        monkeypatch.delenv("OMP_NUM_THREADS")
        with computing_threads(None) as count:
            assert count == torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
