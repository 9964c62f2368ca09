"""What a source has, and what is wrong with it, as tests say it."""

import re

import pytest

from vitreous.errors import DataError
from vitreous.tasks.data_check import bad_samples, check


def sizes(source):
    return {split: len(samples) for split, samples in source.splits.items()}


def ids(source):
    return {split: [sample.id for sample in samples] for split, samples in source.splits.items()}


def assert_problems(problems, expected, *, more=False):
    """expected: (file, a pattern of the facts) of each problem. more: there may be others."""
    found = [(problem.file, problem.what) for problem in problems]
    for file, facts in expected:
        assert any(name == file and re.search(facts, what) for name, what in found), (file, facts)
    assert more or len(found) == len(expected), found


def assert_spoiled(source, bad, file, message):
    """The image `bad` alone cannot be used: an error, the data check and the search for bad samples
    name the file (below the source's root) that has to be changed."""
    by_id = {sample.id: sample for samples in source.splits.values() for sample in samples}
    with pytest.raises(DataError) as error:
        source.truth(by_id.pop(bad))
    said = str(error.value)
    assert re.match(f"{re.escape(source.path(file))}: {message}", said), said
    assert "\n" not in said
    for other in by_id.values():
        source.truth(other)
    found = bad_samples(source, workers=1)
    assert [(id, problem.file) for id, problem in found.items()] == [(bad, file)]
    assert [problem.file for problem in check(source, workers=1).unusable] == [file]
