"""Compares the problems that were found with the facts that must be in them."""

import re


def assert_problems(problems, expected, *, more=False):
    """expected: (file, a pattern of the facts) of each problem. more: there may be others."""
    found = [(problem.file, problem.what) for problem in problems]
    for file, facts in expected:
        assert any(name == file and re.search(facts, what) for name, what in found), (file, facts)
    assert more or len(found) == len(expected), found
