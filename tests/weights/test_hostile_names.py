"""Files with more or longer names of tensors than any model has are listed in no time."""

import time

import pytest
import torch
from safetensors.torch import save_file

from vitreous.cli.main import main
from vitreous.errors import ConfigError
from vitreous.models import create
from vitreous.weights import identify
from vitreous.weights.adopt import find
from vitreous.weights.identify import LONGEST_NAME, MOST_KINDS, MOST_TENSORS, too_many_names
from vitreous.weights.listing import group_tensors, list_weights
from vitreous.weights.origin import open_weights


def stored(path, names):
    save_file({name: torch.zeros(1) for name in names}, path)
    return path


@pytest.mark.parametrize(
    "names",
    [
        [f"layer.{i}.weight" for i in range(100_000)],
        [f"x{''.join(chr(97 + int(d)) for d in str(i))}.weight" for i in range(20_000)],
        ["a" * 1_000_000, "1." * 500_000],
    ],
)
def test_nothing_is_compared_with_all_formats(names, monkeypatch):
    """Each format would be tried on each name."""

    def fail(*args):
        raise AssertionError

    monkeypatch.setattr(identify, "gather", fail)
    assert too_many_names(names)
    assert identify.readings(open_weights(dict.fromkeys(names, torch.zeros(1)))) == []


def test_no_model_has_so_many():
    with torch.device("meta"):
        names = [*create("vit-G/14").state_dict()]
    assert len(names) < MOST_TENSORS / 10
    assert not too_many_names(names)
    assert too_many_names([f"{i}" for i in range(MOST_TENSORS + 1)])
    assert too_many_names(["a" * (LONGEST_NAME + 1)])
    kinds = [f"{chr(0x4E00 + i)}.weight" for i in range(MOST_KINDS)]
    assert not too_many_names(kinds)
    assert too_many_names([*kinds, "other"])


def test_a_long_name_is_listed_shortly(tmp_path, capsys):
    path = stored(tmp_path / "long.safetensors", ["b" * 100_000, "1." * 10_000, "short"])
    assert main(["weights", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 400
    assert any(line.startswith("short ") for line in lines)
    assert main(["weights", str(path), "--all"]) == 0
    assert len(capsys.readouterr().out) < 5_000
    with pytest.raises(ConfigError) as e:
        find(str(path))
    assert len(str(e.value)) < 2_000
    assert list_weights(path).readings == []


def test_names_with_two_numbers_are_grouped_without_their_product():
    """20,000 pairs (i, i) are 400 million places of a product."""
    began = time.process_time()
    names = [f"a.{i}.b.{i}" for i in range(20_000)]
    shapes, dtypes = dict.fromkeys(names, (1,)), dict.fromkeys(names, "float32")
    assert len(list(group_tensors(shapes, dtypes))) == 20_000
    assert time.process_time() - began < 20


def test_groups_of_names():
    names = [f"blocks.{i}.norm{j}.weight" for i in range(12) for j in (1, 2)]
    names += ["head.0", "head.1", "tail.01", "tail.1"]
    shapes, dtypes = dict.fromkeys(names, (1,)), dict.fromkeys(names, "float32")
    found = {group.name: group.tensors for group in group_tensors(shapes, dtypes)}
    assert found == {
        "blocks.{0-11}.norm{1,2}.weight": 24,
        "head.{0,1}": 2,
        "tail.01": 1,
        "tail.1": 1,
    }
