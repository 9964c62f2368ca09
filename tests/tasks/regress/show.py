"""How numbers are printed, reported and explained."""

from tasks.regress.task import KILOGRAMS, TASK

from vitreous.pages.content import Section, measured
from vitreous.tasks.show import Show, TaskReport


class RegressReport(TaskReport):
    """The largest errors."""

    curves = {"mae": "mean absolute error"}  # noqa: RUF012
    most = 8

    def see(self, batch, output, targets):
        for i, (given, true) in enumerate(zip(output.tolist(), targets.tolist(), strict=True)):
            if self.worst.wants(-abs(given - true)):
                note = f"ground truth: {true:.3g} {KILOGRAMS}"
                shown = self.example(batch, i, f"{given:.3g} {KILOGRAMS}", note)
                self.worst.add(-abs(given - true), shown)

    def headline(self, result):
        return {"mean absolute error": measured(result, "mae", text=TASK.metric.text)}

    def sections(self, result):
        return [Section("Largest errors", examples=self.worst.found)]


class RegressShow(Show):
    headings = ("weight>",)
    report = RegressReport

    def row(self, result, top):
        return (f"{result.value:.3g} {KILOGRAMS}",)

    def target_text(self, target, labels):
        return f"{target:.3g} {KILOGRAMS}"

    def answer(self, found):
        return f"{found.result.value:.3g} {KILOGRAMS}"


SHOW = RegressShow()
