"""What the report of every task with classes shows."""

import re


def assert_report(report, numbers, digits, metric, headings, figures, hardest):
    """The page, and its rows of classes as text by name. `hardest`: what classes are sorted by."""
    page, split, result = report
    text = page.read_text()
    assert split == "test"
    assert "best at epoch 1 of 2" in text
    for key in numbers:
        assert f"<b>{100 * result[key]:.{digits}f} %</b>" in text
    assert text.count("<svg") == figures
    for words in ("Classes, the hardest first", "Worst images", *headings):
        assert f"<h2>{words}</h2>" in text
    assert not re.search(r"""(src|href)=["']http""", text), "nothing is fetched from elsewhere"
    rows = re.findall(r"<tr><td><i [^>]*></i>(\w+)</td>(.*?)</tr>", text, re.DOTALL)
    scores = {name: row[hardest] for name, row in result["classes"].items()}
    unknown_last = sorted(scores, key=lambda name: 2 if scores[name] is None else scores[name])
    assert [name for name, _ in rows] == unknown_last
    worst = [float(each) for each in re.findall(rf"<b>{metric} ([\d.]+)</b>", text)]
    assert worst == sorted(worst)
    return text, dict(rows)
