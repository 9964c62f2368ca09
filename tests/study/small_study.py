"""A study that takes seconds, and a pool that runs it in this process."""

from vitreous.study.pool import Answer
from vitreous.study.read import parse_study
from vitreous.study.run import StudyRun
from vitreous.study.worker import answer

SMALL = """
question = "Which rate?"

[claim]
source = "Nobody 2026, table 1"

[recipe]
data = "digits"
model = "vit"
image_size = 8
fraction = 0.1
epochs = 1
batch = 32
lr = 3e-3
crop = "none"
optimizer = "adamw"
set = { patch = 4, dim = 16, depth = 1, heads = 2, mlp_dim = 16 }

[[variant]]
name = "plain"

[[variant]]
name = "wide"
set = { dim = 24 }

[[expect]]
better = "wide"
than = "plain"

[tier.standard]
seeds = 2
"""


class PoolHere:
    """Takes the place of `Pool`: one job after the other, here."""

    def __init__(self, size, log):
        self.done = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def run(self, jobs, watch):
        for number, job in enumerate(jobs):
            self.done.append(job["name"])
            yield Answer(number, answer(job, lambda message, n=number: watch(n, message["part"])))


def changed(text, **replaced):
    """The study's text with lines in place of others."""
    for old, new in replaced.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def study_run(text, folder, *, log=None, tier="standard", seeds=None, data=None):
    study = parse_study(text).at_tier(tier, seeds, data)
    said = [] if log is None else log
    return StudyRun(study, folder, 1, 1, said.append, progress=False)
