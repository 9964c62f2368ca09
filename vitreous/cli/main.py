"""`vitreous COMMAND`: finds the command and turns errors into one message and an exit code.

0: done. 2: the user must change something. 1: our fault.
"""

from __future__ import annotations

import contextlib
import importlib
import keyword
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from vitreous import __version__
from vitreous.atomic_write import DISK_ERRORS, cannot_write
from vitreous.errors import VitreousError, did_you_mean, spelled_by
from vitreous.terminal import OutputClosedError, all_printed, print

COMMANDS = {
    "models": "list the models, or public checkpoints (--weights)",
    "summary": "show a model stage by stage: shapes, parameters, FLOPs",
    "data": "check data before training (data check PATH)",
    "train": "train or fine-tune a model on your data",
    "pretrain": "pre-train an encoder on images without labels",
    "evaluate": "evaluate a trained model: metrics, metrics per class, figures",
    "compare": "compare runs: what differs, which is better, whether that is chance",
    "predict": "predict what images show",
    "embed": "vectors of images: neighbours, duplicates, doubtful labels, k-NN accuracy, a map",
    "explain": "see what a model looks at: the papers' figures, and a page to explore",
    "course": "vision transformers from pixels to proofs: pages, exercises, cards",
    "study": "measure a paper's claim again: several variants and seeds, and a verdict",
    "export": "write a model for ONNX Runtime, OpenVINO or torch.export, verified",
    "benchmark": "measure how fast a model is here, by each engine and beside other libraries",
    "serve": "serve models at an address: HTTP, and a page to try them",
    "import": "make a run folder of weights from elsewhere, verified",
    "weights": "list what a weight file holds, and which model it is for",
    "convert": "convert weights between libraries, and verify them",
}
"""Each is a module of this package; its function `run` takes a dataclass with the arguments."""
SHARED = ("train", "pretrain", "predict", "evaluate", "embed")
"""The commands that the processes of torchrun work on together; others are for the first alone."""


def usage() -> str:
    rows = "\n".join(f"  {name:<10} {what}" for name, what in COMMANDS.items())
    return (
        "usage: vitreous COMMAND [options]\n\n"
        "Vision transformers that you can see through.\n\n"
        f"commands:\n{rows}\n\n"
        "  vitreous COMMAND --help   show the options of a command\n"
        "  vitreous --version        show the version\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Pillow's warnings name no file; 'vitreous data check' reports what matters, with the file.
    warnings.filterwarnings("ignore", module=r"PIL\.")
    rank = int(os.environ.get("RANK", "0"))
    if rank and arguments and arguments[0] not in SHARED:
        return 0
    try:
        with all_printed(), _silent() if rank else contextlib.nullcontext():
            return _dispatch(arguments)
    except OutputClosedError:  # `| head` has read enough, and left; as if SIGPIPE had ended us
        return 128 + 13
    except VitreousError as error:
        code = getattr(error, "code", 2)
        if error.told_elsewhere:
            return code
        of = f"process {rank}: " if rank else ""
        return _fail(f"{of}{error}", code=code)
    except KeyboardInterrupt:
        if argv is None:  # threads that still work would be waited for
            signal.signal(signal.SIGINT, lambda *given: os._exit(130))
        return 130 if rank else _fail("stopped", code=130)
    except OSError as error:
        if error.errno not in DISK_ERRORS:
            raise
        return _fail(str(cannot_write(error.filename or "a file", error)))


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage(), end="")
        return 0
    command, rest = arguments[0], arguments[1:]
    if command == "--version":
        print(f"vitreous {__version__}")
        return 0
    if command not in COMMANDS:
        hint = did_you_mean(command, COMMANDS) or f": the commands are {', '.join(COMMANDS)}"
        return _fail(f"unknown command {command!r}{hint}")
    if command in ("train", "pretrain"):
        _wait_briefly()
    module = module_of(command)
    from vitreous.cli.parse import advice_in_shell, arguments_of, options_of, parse

    with spelled_by(advice_in_shell(options_of(arguments_of(module)))):
        try:
            parsed = parse(command, module, rest)
        except VitreousError as error:  # all processes of torchrun have the same words
            error.told_elsewhere = int(os.environ.get("LOCAL_RANK", "0")) > 0
            raise
        return module.run(parsed) or 0


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Of several processes the first one prints."""
    with open(os.devnull, "w", encoding="utf-8") as nothing, contextlib.redirect_stdout(nothing):
        yield


SPINS = "1000"
"""How often a thread of OpenMP looks whether it may go on before it sleeps. On an idle machine a
step takes as long as without a limit, and with none at all half as long again."""


def _wait_briefly() -> None:
    """Let OpenMP's threads sleep when they wait for long (`train/threads.py`), unless the user has
    decided it. It is read when torch is imported."""
    if not os.environ.keys() & {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}:
        os.environ["GOMP_SPINCOUNT"] = SPINS


def module_of(command: str) -> Any:
    """A command imports what it needs, torch among it, only when it is called."""
    name = f"{command}_" if keyword.iskeyword(command) else command
    return importlib.import_module(f"vitreous.cli.{name}")


def _fail(message: str, code: int = 2) -> int:
    with contextlib.suppress(OutputClosedError):
        print(f"vitreous: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
