"""Processes of torchrun share the work of predict, evaluate and embed, and one of them prints."""

import json

import pytest
from train.processes import end, in_ranks, start_ranks
from train.tiny import class_folder, teacher, vitreous_command

from vitreous.errors import DataError
from vitreous.train.distributed import sharing


def doubled(things):
    """In batches of two; each process keeps what it was given."""
    for first in range(0, len(things), 2):
        if -1 in things[first : first + 2]:
            raise DataError("a bad one")
        yield [2 * thing for thing in things[first : first + 2]]


def write_shared(folder, things):
    found, error = [], ""
    with sharing() as world:
        mine = []

        def work(some):
            mine.extend(some)
            return doubled(some)

        try:
            found.extend(world.share(things, 2, work))
        except DataError as raised:
            error = f"{raised} {raised.told_elsewhere}"
    facts = {"found": found, "mine": mine, "error": error}
    (folder / f"{world.rank}.json").write_text(json.dumps(facts))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8])
def test_each_computes_a_part_and_the_first_has_all(tmp_path, count):
    things = list(range(count))
    in_ranks(write_shared, tmp_path, things)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first["found"] == list(doubled(things))
    assert second["found"] == []
    assert sorted(first["mine"] + second["mine"]) == things
    assert len(first["mine"]) - len(second["mine"]) <= 2


def test_an_error_is_raised_in_all_and_told_by_one(tmp_path):
    in_ranks(write_shared, tmp_path, [0, 1, 2, -1, 4, 5])
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1))
    assert first["found"] == [[0, 2]]
    assert first["error"] == "a bad one False"
    assert second["error"] == "a bad one True"


@pytest.mark.parametrize("command", ["predict", "evaluate", "embed", "summary"])
def test_commands_print_once_what_one_process_prints(tmp_path, command):
    """With the same exit code; of an image that cannot be used, too. What is not shared, the first
    process does alone."""
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"no image")
    words = {
        "predict": [teacher(), class_folder() / "test", bad, "--json", "--batch=3"],
        "evaluate": [teacher(), "--json", "--batch=3"],
        "embed": [teacher(), class_folder(), "--knn", "--batch=8", "--json"],
        "summary": ["vit-ti/16"],
    }[command]
    one = vitreous_command(command, *words, check=False)
    processes = start_ranks([command, *words], tmp_path / "two.txt")
    codes = [end(process) for process in processes]
    printed = [(tmp_path / f"two.{rank}").read_text() for rank in (0, 1)]
    assert codes[0] == one.returncode == (2 if command == "predict" else 0)
    assert sorted(printed[0].splitlines()) == sorted((one.stdout + one.stderr).splitlines())
    assert printed[1] == ""


def test_shared_vectors_are_written_once_and_taken_up_again(tmp_path):
    words = ["embed", teacher(), class_folder(), "--batch=8", f"--out={tmp_path / 'v.npz'}"]
    for again in (False, True):
        processes = start_ranks(words, tmp_path / "two.txt")
        assert [end(process) for process in processes] == [0, 0]
        printed = (tmp_path / "two.0").read_text()
        assert ("200 of 200 vectors are there already" in printed) == again
    assert [path.name for path in tmp_path.glob("v*")] == ["v.npz"]
