"""A task is one package and one row: nobody else knows a task's name."""

import ast
from pathlib import Path

import pytest

import vitreous
from vitreous.tasks import PRETRAINING, RECIPES, TASKS, show_of, task_class
from vitreous.tasks.show import Show
from vitreous.tasks.task import Task

ROOT = Path(vitreous.__file__).parent
ELSEWHERE = sorted(
    path
    for path in ROOT.rglob("*.py")
    if not any(path.is_relative_to(ROOT / "tasks" / t) for t in (*TASKS, *PRETRAINING))
)
TABLE = ROOT / "tasks" / "__init__.py"


def known_tasks(path):
    """Names of tasks in strings that are not documentation, in imports and in class names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    classes = {task_class(name).__name__ for name in TASKS}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documented and text in TASKS:
                yield f"line {node.lineno}: {text!r}"
            case ast.ImportFrom(module=str(module)) | ast.alias(name=module):
                if any(
                    module.startswith(f"vitreous.tasks.{name}") for name in [f"{t}." for t in TASKS]
                ):
                    yield f"imports {module}"
            case ast.Name(id=name) if name in classes:
                yield f"line {node.lineno}: {name}"


@pytest.mark.parametrize("path", ELSEWHERE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_other_file_knows_a_tasks_name(path):
    if path == TABLE:
        assert sorted(known.split("'")[1] for known in known_tasks(path)) == sorted(TASKS)
    else:
        assert not list(known_tasks(path))


def test_the_show_side_is_called_from_above():
    """The import rules do not see through the table; `predictor.explain` is the exception."""
    callers = {
        path.relative_to(ROOT).parts[0]
        for path in ROOT.rglob("*.py")
        if path != TABLE and "show_of" in path.read_text(encoding="utf-8")
    }
    assert callers <= {"api", "cli", "explain", "pages", "predict.py", "serve", "study"}


def test_the_search_finds_what_it_looks_for(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text(
        '"""tag is fine here"""\nfrom vitreous.tasks.tag.task import Tag\n'
        'if task == "detect":\n    Tag()\n'
    )
    assert len(list(known_tasks(bad))) == 3


@pytest.mark.parametrize("method", PRETRAINING)
def test_nor_a_methods_name(method):
    """Of pre-training: but a family of models may be called so, too."""
    families = (ROOT / "models", ROOT / "weights" / "families")
    others = [path for path in ELSEWHERE if not any(map(path.is_relative_to, families))]
    knowing = [path for path in others if f'"{method}"' in path.read_text(encoding="utf-8")]
    assert knowing == [TABLE]
    assert (Path(ROOT).parent / "recipes" / f"{RECIPES[method]}.toml").exists()


@pytest.mark.parametrize("name", [*TASKS, *PRETRAINING])
def test_each_task_has_both_sides(name):
    task, show = task_class(name), show_of(name)
    assert issubclass(task, Task)
    assert task.name == name
    assert task.purpose
    assert isinstance(show, Show)
    assert show.headings


@pytest.mark.parametrize("name", TASKS)
def test_no_task_knows_another(name):
    for path in (ROOT / "tasks" / name).glob("*.py"):
        others = [known for known in known_tasks(path) if f"{name}" not in known.casefold()]
        assert not others, path
