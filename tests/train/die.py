"""`vitreous ARGUMENTS`, dying by SIGKILL at the n-th call that changes the disk (0: not at all).

python tests/train/die.py N train DATA ...
"""

import os
import shutil
import signal
import sys

from vitreous.cli.main import main


def deadly(function, calls):
    def call(*args, **kwargs):
        calls.append(function)
        if len(calls) == int(sys.argv[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)

    return call


if __name__ == "__main__":
    made = []
    for module, name in ((os, "replace"), (os, "fsync"), (shutil, "rmtree")):
        setattr(module, name, deadly(getattr(module, name), made))
    sys.exit(main(sys.argv[2:]))
