"""The progress that is printed."""

from vitreous.train import progress
from vitreous.train.progress import Event


def test_the_time_to_go_is_that_of_the_steps(monkeypatch, capsys):
    """Not that of the features of a linear probe, which are computed once, before them."""
    times = iter([0.0, 100.0, 101.0])  # begun, step 1, step 2
    monkeypatch.setattr(progress.time, "perf_counter", lambda: next(times))
    shown = progress.TrainingProgress()
    for step in (1, 2):
        evaluated = {"accuracy": 0.5} if step == 2 else None
        shown.event(Event(step, 40, step / 2, 0.1, 1e-3, 9.0, evaluated, "accuracy"))
    assert "101 s, 38 s to go" in capsys.readouterr().err
