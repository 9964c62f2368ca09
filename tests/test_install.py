"""The package as it is installed."""

import os
import subprocess
import sys


def test_it_is_found_beside_a_folder_of_its_name(tmp_path):
    """In the folder above a clone, which holds no package: Python could take it for one."""
    (tmp_path / "vitreous").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    code = "import vitreous; print(vitreous.__version__)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
