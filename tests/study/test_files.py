"""Study files: those that ship can be run, and a mistake in one's own is named with its key."""

import pytest
import torch
from study.small_study import SMALL

from vitreous.config import config_fields
from vitreous.errors import ConfigError
from vitreous.models import create
from vitreous.study.find import find_study, shipped
from vitreous.study.plan import StudyPlan
from vitreous.study.read import parse_study
from vitreous.study.spec import TIERS
from vitreous.train.build_model import wrapped

SHIPPED = {study.name: study for study in shipped()}


@pytest.mark.parametrize("name", SHIPPED)
def test_every_arm_of_a_study_that_ships_can_be_built(name, tmp_path):
    """And what is trained before it: teachers, and encoders without labels."""
    for tier in TIERS:
        plan = StudyPlan(SHIPPED[name].at_tier(tier), tmp_path)
        before = [job for level in plan.before(plan.arms) for job in level]
        for job in (*map(plan.first, plan.arms), *before):
            recipe = wrapped(job.recipe)
            classes = {} if recipe.method else {"classes": 10}
            with torch.device("meta"):
                values = config_fields(recipe.fields)
                create(recipe.model or "", image_size=recipe.image_size[0], **classes, **values)
            assert recipe.split_seed == 0
            assert recipe.precision == "float32"


@pytest.mark.parametrize("name", SHIPPED)
def test_a_study_that_ships_says_what_is_claimed_by_whom_and_what_differs(name):
    study = SHIPPED[name]
    assert study.question.endswith("?")
    assert study.claim.text
    assert study.claim.source
    assert study.claim.differs
    assert study.expect
    assert study.paper.values or study.paper.others or "found" in study.claim.differs
    assert all(rule.text for rule in study.expect)


def test_three_seeds_are_usual_and_one_is_quick():
    study = SHIPPED["positions"]
    assert [study.at_tier(tier).seeds for tier in TIERS] == [1, 3, 5]
    assert study.at_tier("quick", seeds=2).seeds == 2


def test_other_data_changes_what_the_file_says_about_that():
    study = SHIPPED["positions"].at_tier("quick", data="./mine")
    assert study.recipe["data"] == "./mine"
    assert study.recipe["image_size"] == 32
    assert study.recipe["set"]["patch"] == 4
    assert study.recipe["set"]["depth"] == 3


BAD = {
    "unknown key": ("question =", "qestion =", "question"),
    "no question": ('question = "Which rate?"', "", "question is missing"),
    "unknown recipe key": ("epochs = 1", "epoch = 1", "epochs"),
    "a rule about nobody": ('better = "wide"', 'better = "wider"', "wider"),
    "a rule of two kinds": ('than = "plain"', 'than = "plain"\nrises = "plain"', "exactly one"),
    "a rule that misses something": ('\nthan = "plain"', "", "than"),
    "what does nothing": ('than = "plain"', 'than = "plain"\nwithin = 2.0', "does nothing"),
    "two of one name": ('name = "wide"', 'name = "plain"', "two rows"),
    "a name that is no folder": ('name = "wide"', 'name = "Wi/de"', "small letters"),
    "an unknown tier": ("[tier.standard]", "[tier.large]", "large"),
    "an axis of two": (
        "[tier.standard]",
        "[over]\ndim = [1]\ndepth = [2]\n[tier.standard]",
        "one axis",
    ),
    "nobody before": ("fraction = 0.1", 'fraction = 0.1\nteacher = "@prof"', "prof"),
    "not TOML": ("[claim]", "[claim", "TOML"),
    "a search beside a rate": ("[tier.standard]", "[search]\nlr = [1.0]\n[tier.standard]", "lr"),
    "no seeds": ("seeds = 2", "seeds = -1", "at least 1"),
}


def planned(text, folder):
    plan = StudyPlan(parse_study(text, "mine.toml").at_tier("standard"), folder)
    return plan.first(plan.arms[0])


@pytest.mark.parametrize("what", BAD)
def test_a_mistake_is_named(what, tmp_path):
    old, new, said = BAD[what]
    assert old in SMALL
    with pytest.raises(ConfigError) as error:
        planned(SMALL.replace(old, new), tmp_path)
    assert said in str(error.value)
    assert "mine.toml" in str(error.value)


def test_a_study_that_does_not_exist_has_a_suggestion(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'positions'"):
        find_study("position")
    with pytest.raises(ConfigError, match="there is no such study file"):
        find_study(str(tmp_path / "none.toml"))
