"""A page in a headless browser that is installed here, without any library: Chromium speaks JSON
over two pipes (--remote-debugging-pipe)."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = (
    *("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"),
    *("microsoft-edge", "brave-browser"),
)
FLAGS = ("headless", "remote-debugging-pipe", "no-first-run", "disable-gpu", "disable-extensions")
PATIENCE = 60
"""Seconds for an answer."""


class BrowserError(Exception):
    """A browser that does not start, or a page that fails in it."""


def find_browser() -> str | None:
    if os.name != "posix":  # pipes are passed on otherwise elsewhere
        return None
    return next((path for path in map(shutil.which, NAMES) if path), None)


@contextmanager
def opened_page(browser: str, page: Path) -> Iterator[Any]:
    """Inside, a function that evaluates JavaScript in the page and returns what it gives; promises
    are waited for. There is no network."""
    with tempfile.TemporaryDirectory() as profile:
        read_end, to_browser = _pipe()
        from_browser, write_end = _pipe()
        sandbox = ["no-sandbox"] if os.geteuid() == 0 else []  # which it does not have for root
        flags = (*FLAGS, f"user-data-dir={profile}", *sandbox)
        command = [browser, *(f"--{each}" for each in flags)]
        # the browser reads from 3 and writes to 4
        put = f"import os, sys; os.dup2({read_end}, 3); os.dup2({write_end}, 4)"
        process = subprocess.Popen(
            [sys.executable, "-c", f"{put}; os.execv(sys.argv[1], sys.argv[1:])", *command],
            pass_fds=(read_end, write_end),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_end)
        os.close(write_end)
        talk = _Talk(to_browser, from_browser)
        try:
            target = talk.call("Target.createTarget", url="about:blank")["targetId"]
            session = talk.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            talk.session = session
            talk.call("Network.enable")
            talk.call(
                "Network.emulateNetworkConditions",
                offline=True,
                latency=0,
                downloadThroughput=0,
                uploadThroughput=0,
            )
            talk.call("Page.navigate", url=page.resolve().as_uri())
            yield talk.evaluate
        finally:
            with suppress(Exception):
                talk.session = None
                talk.call("Browser.close")
            os.close(to_browser)
            os.close(from_browser)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _pipe() -> tuple[int, int]:
    """Its ends, with numbers that nobody else means."""
    made = os.pipe()
    ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in made]
    for end in made:
        os.close(end)
    return ends[0], ends[1]


class _Talk:
    """Calls with numbers, and answers that have them."""

    def __init__(self, to: int, of: int) -> None:
        self.to, self.of, self.count, self.rest = to, of, 0, b""
        self.session: str | None = None

    def call(self, method: str, **given: Any) -> Any:
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": given}
        if self.session is not None:
            message["sessionId"] = self.session
        try:
            self._write(json.dumps(message).encode() + b"\0")
        except OSError as error:
            raise BrowserError(f"the browser is gone ({error})") from None
        until = time.monotonic() + PATIENCE
        while True:
            answer = self._answer(until)
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error'].get('message')}")
                return answer["result"]

    def evaluate(self, expression: str) -> Any:
        found = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            about = found["exceptionDetails"]
            why = about.get("exception", {}).get("description") or about.get("text")
            raise BrowserError(f"the page fails: {why}")
        return found["result"].get("value")

    def _write(self, content: bytes) -> None:
        while content:
            content = content[os.write(self.to, content) :]

    def _answer(self, until: float) -> dict[str, Any]:
        while b"\0" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.of], [], [], left)[0]:
                raise BrowserError(f"the browser gave no answer within {PATIENCE} seconds")
            part = os.read(self.of, 1 << 20)
            if not part:
                raise BrowserError("the browser ended")
            self.rest += part
        message, _, self.rest = self.rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found
