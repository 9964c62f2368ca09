"""How long a run has learned: apart from its metrics, and counted on when it is resumed."""

import json
import shutil

from runs import OLD_RUNS
from train.tiny import evaluations, progress_of, quick, train, trained

from vitreous.run_folder import Run, describe_file, newest_checkpoint


def test_every_evaluation_has_its_times():
    times = Run(trained()).times()
    assert [line["step"] for line in times] == [line["step"] for line in evaluations(trained())]
    assert [line["images"] for line in times] == [16 * line["step"] for line in times]
    for name in ("seconds", "cpu_seconds"):
        spent = [line[name] for line in times]
        assert 0 < spent[0] < spent[-1]
        assert spent == sorted(spent)
        assert all(name not in line for line in evaluations(trained()))


def test_a_resumed_run_counts_on(tmp_path):
    out = shutil.copytree(trained(), tmp_path / "run")
    for path in sorted((out / "checkpoints").iterdir())[2:]:
        shutil.rmtree(path)
    progress = newest_checkpoint(out / "checkpoints") / "progress.json"
    values = json.loads(progress.read_text()) | {"seconds": 1000.0, "cpu_seconds": 2000.0}
    progress.write_text(json.dumps(values))
    manifest = progress.with_name("manifest.json")
    files = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(files | {progress.name: describe_file(progress)}))
    train(out, "--resume")
    times = Run(out).times()
    assert [line["step"] for line in times] == [line["step"] for line in evaluations(out)]
    later = [line for line in times if line["step"] > values["step"]]
    assert later
    assert all(1000 < line["seconds"] < 1100 and line["cpu_seconds"] > 2000 for line in later)
    assert progress_of(out)["seconds"] >= times[-1]["seconds"] - 0.001


def test_a_run_that_an_older_version_began_has_no_times(tmp_path):
    """Half of them would look like all."""
    out = shutil.copytree(OLD_RUNS / "classify", tmp_path / "run")
    quick("train", "--resume", "--out", str(out), "--epochs=4")
    assert len(evaluations(out)) > 0
    assert Run(out).times() == []
