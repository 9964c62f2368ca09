"""A page in Firefox, if it is installed, without any library: it speaks JSON over a socket
(Marionette)."""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time

import pytest

READY = "return document.documentElement.dataset.ready"
PREFERENCES = {
    "browser.shell.checkDefaultBrowser": "false",
    "datareporting.policy.dataSubmissionEnabled": "false",
    "network.manage-offline-status": "false",
}


@contextlib.contextmanager
def firefox(path, patience=60):
    """Inside, a function that runs JavaScript in the page, when it is ready, and returns what that
    returns."""
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        pytest.skip("needs Firefox: apt-get install firefox-esr")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        port = free_port()
        lines = {**PREFERENCES, "marionette.port": port}.items()
        with open(f"{folder}/user.js", "w", encoding="utf-8") as file:
            file.writelines(f'user_pref("{name}", {value});\n' for name, value in lines)
        process = subprocess.Popen(
            [program, "--headless", "--marionette", "--no-remote", "--profile", folder],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder},
        )
        try:
            with connected(port, time.monotonic() + patience) as call:
                call("WebDriver:NewSession")
                call("WebDriver:Navigate", url=path.as_uri())

                def evaluate(script):
                    asked = {"script": script, "args": [], "sandbox": None}
                    return call("WebDriver:ExecuteScript", **asked)["value"]

                until = time.monotonic() + patience
                while not evaluate(READY):
                    assert time.monotonic() < until, evaluate("return document.body.innerText")
                    time.sleep(0.05)
                yield evaluate
        finally:
            process.terminate()
            process.wait(20)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextlib.contextmanager
def connected(port, until):
    while True:
        try:
            sock = socket.create_connection(("127.0.0.1", port))
            break
        except OSError:
            assert time.monotonic() < until, "Firefox does not start"
            time.sleep(0.05)
    with sock, sock.makefile("rwb") as stream:

        def read():
            digits = b""
            while (each := stream.read(1)) != b":":
                digits += each
            return json.loads(stream.read(int(digits)))

        def call(name, **given):
            message = json.dumps([0, 1, name, given]).encode()
            stream.write(b"%d:%s" % (len(message), message))
            stream.flush()
            _, _, error, found = read()
            assert error is None, error
            return found

        read()  # who it is
        yield call
