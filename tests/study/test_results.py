"""What the docs say of studies is what their results say."""

import importlib.util
import json
from pathlib import Path

import pytest

from vitreous.study.find import shipped

ROOT = Path(__file__).parents[2]
spec = importlib.util.spec_from_file_location("study_results", ROOT / "tools" / "study_results.py")
tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tool)
NAMES = [study.name for study in shipped()]


def test_the_page_is_written_from_the_results():
    assert (ROOT / "docs" / "study-results.md").read_text(encoding="utf-8") == tool.page(
        tool.all_results()
    )


@pytest.mark.parametrize("path", sorted(tool.RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_result_is_of_a_study_that_ships_with_its_seeds_and_rules(path):
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["study"] == path.stem in NAMES
    assert found["tier"] != "quick"
    assert len(found["rules"]) >= 1
    for point in found["points"]:
        assert len(point["runs"]) == found["seeds"]
