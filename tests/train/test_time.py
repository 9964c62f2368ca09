"""A run that is made for a time (`--time`) ends in that time, on machines that change."""

import itertools

import pytest
from shared import refused
from train.tiny import CLASSIFY, class_folder, progress_of, train
from train.undrawn import undrawn

from vitreous.cli.main import main
from vitreous.run_folder import Run
from vitreous.train import run as train_run
from vitreous.train.optimizer import Schedule
from vitreous.train.recipe import doubled, is_longer, parse_recipe
from vitreous.train.time_budget import AIM, REPORT, TimeBudget
from vitreous.train.trainer import Trainer


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def simulated(budget, step_seconds, per_epoch, check, *, start=2.0, before=0.0):
    """The seconds that a run takes which ends as it is planned, its steps, and the learning rates:
    `step_seconds` of the step and of the seconds since the beginning."""
    clock = Clock()
    plan = TimeBudget(budget, clock.now, clock)
    plan.before, plan.check = before, check
    clock.now += start
    plan.start(0)
    schedule, rates = Schedule(10 * per_epoch), []
    for step in itertools.count():
        rates.append(schedule.lr_factor(step, warmup=0.1, final=0.01))
        clock.now += step_seconds(step, clock.now - 1000)
        if plan.due(step + 1, per_epoch):
            schedule = schedule.planned_again(step + 1, plan.plan(step + 1, per_epoch))
        last = step + 1 >= schedule.steps
        if last or (step + 1) % per_epoch == 0:
            with plan.evaluation():
                clock.now += check
        if last:
            return clock.now + REPORT - 1000 + before, step + 1, rates


MACHINES = {
    "steady": lambda step, now: 0.2,
    "slow first step": lambda step, now: 5.0 if step == 0 else 0.2,
    "three times as fast later": lambda step, now: 0.3 if now < 700 else 0.1,
    "three times as slow later": lambda step, now: 0.1 if now < 700 else 0.3,
    "ten times as slow at the end": lambda step, now: 0.1 if now < 1500 else 1.0,
    "slow for a while": lambda step, now: 1.0 if 400 < now < 800 else 0.1,
    "up and down": lambda step, now: 0.1 + 0.2 * (step // 50 % 2),
}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("per_epoch", "check"), [(20, 0.5), (1000, 20.0), (10**6, 60.0)])
def test_a_run_ends_in_its_time_whatever_the_machine_does(machine, per_epoch, check):
    """Epochs of seconds, of minutes, and one that is longer than the whole time."""
    spent, _, rates = simulated(1800, MACHINES[machine], per_epoch, check)
    assert 0.85 * 1800 <= spent <= 1.05 * 1800
    assert rates[-1] < 0.05  # the schedule ends with the run,
    jumps = [abs(after - before) for before, after in itertools.pairwise(rates[8:])]
    assert max(jumps) < 0.02  # and does not jump on the way
    peak = rates.index(max(rates))
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert max(rates) > 0.95


@pytest.mark.parametrize("budget", [30, 60, 180])
def test_short_times(budget):
    spent, _, _ = simulated(budget, lambda step, now: 0.05, 20, 0.2)
    assert 0.85 * budget <= spent <= 1.05 * budget


def test_steps_that_are_long_for_the_time():
    spent, steps, rates = simulated(300, lambda step, now: 20.0, 500, 10.0)
    assert 0.85 * 300 <= spent <= 1.05 * 300
    assert 10 <= steps <= 14
    assert rates[-1] < 0.1


def test_a_time_that_is_too_short_takes_one_step():
    assert simulated(1, lambda step, now: 3.0, 20, 2.0)[1] == 1


def test_time_that_was_spent_before_counts():
    spent, steps, _ = simulated(600, lambda step, now: 0.2, 100, 1.0, before=300.0)
    assert 0.85 * 600 <= spent <= 1.05 * 600
    assert steps < simulated(600, lambda step, now: 0.2, 100, 1.0)[1] * 0.6


def test_a_schedule_that_is_not_planned_again_is_the_usual_one():
    schedule = Schedule(40, 10)
    assert [schedule.position(step) for step in range(40)] == list(range(40))
    again = schedule.planned_again(4, 80)  # while the head is trained alone: nothing is done yet
    assert (again.done, again.position(9), again.position(10)) == (0, 9, 10)
    later = again.planned_again(45, 50)
    assert later.position(45) == pytest.approx(10 + 0.5 * 40)
    assert later.position(50) == 50


@pytest.fixture
def fake_clock(monkeypatch):
    """A step takes a second, and nothing else any time."""
    clock = Clock()

    class Budget(TimeBudget):
        def __init__(self, seconds, began):
            super().__init__(seconds, clock.now, clock)

    whole = Trainer.step

    def step(self, *args):
        clock.now += 1
        return whole(self, *args)

    monkeypatch.setattr(train_run, "TimeBudget", Budget)
    monkeypatch.setattr(Trainer, "step", step)
    with undrawn():
        yield clock


def timed(out, *more):
    return main(["train", str(class_folder()), *CLASSIFY, f"--out={out}", *more])


def test_a_run_keeps_its_plan_and_is_resumed_by_it(tmp_path, fake_clock, capsys, monkeypatch):
    """Killed and resumed, it has the plan, the learning rate and the seconds that it had."""
    out, whole = tmp_path / "run", Trainer.save

    class Killed(BaseException):
        pass

    def kill(self):
        whole(self)
        if self.progress.step >= 15:
            raise Killed

    monkeypatch.setattr(Trainer, "save", kill)
    with pytest.raises(Killed):
        timed(out, "--time=45s")
    monkeypatch.setattr(Trainer, "save", whole)
    killed = progress_of(out)
    assert killed["spent"] == killed["step"] == 15
    assert killed["schedule"][0] == pytest.approx(AIM * 45 - REPORT, abs=1)
    assert 'time = "45s"' in (out / "recipe.toml").read_text()
    assert main(["train", "--resume", f"--out={out}"]) == 0
    done = progress_of(out)
    assert done["finished"]
    assert done["step"] == killed["schedule"][0]
    assert done["spent"] == done["step"]
    lines = [line for line in Run(out).metrics() if line["step"] >= 8]
    rates = [line["lr"] for line in lines]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.05 * rates[0]
    assert {line["steps"] for line in lines if line["kind"] == "plan"} <= {36, 37, 38}
    assert "in 45s" in (out / "report.html").read_text()
    capsys.readouterr()
    assert main(["train", "--resume", f"--out={out}"]) == 0
    assert "a larger --time makes it longer" in capsys.readouterr().err
    assert main(["train", "--resume", f"--out={out}", "--time=90s"]) == 0
    assert progress_of(out)["step"] == pytest.approx(AIM * 90 - REPORT, abs=1)


def test_the_head_alone_comes_first(tmp_path, fake_clock, capsys):
    """Its schedule and that of all of the model end with their parts."""
    out = tmp_path / "run"
    assert timed(out, "--time=45s", "--set-recipe=unfreeze_after=1") == 0
    assert "step 11: all parameters are trained from here on" in capsys.readouterr().err
    rates = {line["step"]: line["lr"] for line in Run(out).metrics()}
    last = max(rates)
    assert last == pytest.approx(AIM * 45 - REPORT, abs=1)
    assert rates[10] < 0.1 * max(rates.values()) > 2 * rates[last]


def test_time_and_epochs_are_not_given_together(tmp_path):
    assert "both say how long" in refused("train", "digits", "--time=4s", "--epochs=3")
    assert main(["train", "digits", "--time=soon"]) == 2
    out = tmp_path / "run"
    train(out, "--epochs=1")
    assert "the one that it began with" in refused("train", "--resume", f"--out={out}", "--time=4s")


def test_longer_times():
    assert [doubled(each) for each in ("45s", "30m", "1.5 h")] == ["90s", "60m", "3h"]
    recipes = [parse_recipe(f'time = "{each}"\n', "x") for each in ("90s", "2m")]
    assert is_longer(recipes[1], recipes[0])
    assert not is_longer(*recipes)
