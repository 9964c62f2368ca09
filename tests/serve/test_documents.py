"""docs/serving.md and the Dockerfile are followed: with real servers, curl, and without Docker."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
from follow import blocks, shorten
from serve.running import running_as, until
from serve.test_app import files
from train.undrawn import undrawn

from vitreous.cli.main import main, module_of
from vitreous.cli.parse import parse

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "serving.md"
ADDRESS = "http://127.0.0.1:8000"


def test_the_page_is_followed(tmp_path, monkeypatch, capsys):
    """`vitreous serve` starts a server that lasts until the next one; curl asks it."""
    monkeypatch.chdir(tmp_path)
    asked: list[tuple] = []
    monkeypatch.setattr("vitreous.serve.server.serve", lambda *given: asked.append(given))
    names, url, ran = {}, "", []
    with contextlib.ExitStack() as servers:
        for language, text in blocks(PAGE):
            if language == "python":
                exec(compile(text.replace(ADDRESS, url), PAGE.name, "exec"), names)
                ran.append("python")
            for line in text.splitlines() if language == "sh" else ():
                words = shlex.split(line) if line.startswith("vitreous ") else []
                if not words:
                    found = shell(line.replace(ADDRESS, url))
                    if line.startswith("curl "):
                        assert json.loads(found), line
                elif words[1] == "serve":
                    assert main(words[1:]) == 0
                    servers.close()
                    url = servers.enter_context(running_as(*asked[-1])).url
                else:
                    with undrawn():
                        assert main(shorten(words[1:])) == 0
                ran.append(line.split()[0] if line else "")
    printed = capsys.readouterr()
    assert (ran.count("curl"), ran.count("python")) == (7, 2)
    assert "['digits', 'fast']" in printed.out
    assert "config.json: is not an image that can be read" in printed.out
    assert "without --token FILE" not in printed.err


def shell(line):
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout


# The Dockerfile


def instructions():
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [tuple(line.split(None, 1)) for line in lines]


def only(name):
    (found,) = [value for key, value in instructions() if key == name]
    return found


def test_the_container(runs, photos, tmp_path):
    """Its files are copied, the package is installed from them alone, its command is run as it
    stands, and its health is checked; folders for temporary files and of the user stay empty."""
    image, site = tmp_path / "src", tmp_path / "site"
    image.mkdir()
    for key, value in instructions():
        if key == "COPY":
            *sources, target = value.split()
            for source in sources:
                assert f"!{source}" in (ROOT / ".dockerignore").read_text().splitlines()
                copy(ROOT / source, image / target)
    install = only("RUN")
    words = shlex.split(install)
    assert words[:4] == ["python", "-m", "pip", "install"]
    assert set(re.search(r"\[(.*)\]", words[-1])[1].split(",")) >= {"serve"}
    assert (image / words[words.index("--constraint") + 1]).is_file()
    # what it needs from elsewhere is here already
    here = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *here, "."], cwd=image, check=True)
    user = only("USER").split(":")[0]
    assert user.isdecimal()
    assert int(user) > 0

    command = [*json.loads(only("ENTRYPOINT")), str(runs["vit"])]
    health = json.loads(re.search(r"CMD (\[.*\])", only("HEALTHCHECK"))[1])
    assert command[:2] == ["vitreous", "serve"]
    assert command[command.index("--port") + 1] == only("EXPOSE")
    parse("serve", module_of("serve"), command[2:])
    home = tmp_path / "tmp"
    home.mkdir()
    port = str(free_port())
    command[command.index("--port") + 1] = port
    health[-1] = health[-1].replace(":8000", f":{port}")
    environment = {
        **dict(each.split("=") for each in only("ENV").split()),
        **{"PATH": os.environ["PATH"], "PYTHONPATH": str(site)},
        **{"HOME": str(home), "TMPDIR": str(home)},
    }
    with subprocess.Popen(
        [sys.executable, "-m", *command], cwd=home, env=environment, stderr=subprocess.DEVNULL
    ) as server:
        try:
            check = [sys.executable, *health[1:]]
            quiet = {"stderr": subprocess.DEVNULL, "env": environment}
            until(lambda: subprocess.run(check, check=False, **quiet).returncode == 0, 120)
            large = [*files(photos), ("image", ("large.png", os.urandom(5_000_000)))]
            url = f"http://127.0.0.1:{port}/v1/models/vit/predict"
            assert httpx.post(url, files=large, timeout=60).status_code == 422
            assert httpx.post(url, files=files(photos), timeout=60).status_code == 200
            assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 200  # package data
            assert not list(home.iterdir())
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0
        finally:
            server.kill()
    assert not list(home.iterdir())


def copy(source, target):
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def free_port():
    with socket.socket() as line:
        line.bind(("127.0.0.1", 0))
        return line.getsockname()[1]
