"""How a server begins and ends: names, tokens, /readyz, SIGTERM under load, worker processes."""

import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest
from serve.running import die, running, slow, until
from serve.test_app import files, refused

import vitreous
from vitreous.api.serving import read_token
from vitreous.cli.main import main
from vitreous.errors import ConfigError
from vitreous.serve import server as server_module
from vitreous.serve.lane import NICE, computing_threads
from vitreous.serve.served import named_models
from vitreous.serve.settings import Settings

PATH = "/v1/models/vit/predict"


def test_names():
    found = named_models(["runs/a", "b=runs/a", "x.onnx", "hf:me/my model"])
    assert found == {"a": "runs/a", "b": "runs/a", "x": "x.onnx", "my-model": "hf:me/my model"}
    with pytest.raises(ConfigError, match="two models are called 'a'"):
        named_models(["runs/a", "other/a"])
    with pytest.raises(ConfigError, match="give it a name"):
        named_models(["//"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nothing-here"], "nothing-here"),
        (["RUN", "RUN"], "two models are called"),
        (["RUN", "--max-delay", "5"], "--max-delay 5: expected a number and its unit, like 5ms"),
        (["RUN", "--max-body", "10 MB"], "expected a number and its unit, like 10MB"),
        (["RUN", "--workers", "0"], "workers"),
        (["RUN", "--max-images", "65"], "do not fit into --queue 64"),
        (["RUN", "--token", "none"], "--token none: cannot be read"),
        (["RUN", "--port", "99999"], "cannot be listened at"),
        ([], "what should be served"),
    ],
)
def test_what_cannot_be_served(words, text, runs, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *(str(runs["vit"]) if word == "RUN" else word for word in words)]) == 2
    assert text in capsys.readouterr().err


def test_tokens_of_files(tmp_path):
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    assert read_token(file) == "0123456789abcdef"
    for text in ("", "short", "two words of this token"):
        file.write_text(text)
        with pytest.raises(ConfigError, match="expected one line"):
            read_token(file)


def test_a_model_that_cannot_be_loaded_ends_the_server(runs):
    def load(path, **options):
        raise ConfigError("no such model")

    with running(runs["vit"], load=load) as server:
        assert str(server.life.failure) == "no such model"
        until(lambda: not server.server.server_state.connections)


def test_ready_when_warm_and_until_it_stops(runs, photos):
    go = threading.Event()

    def load(path, **options):
        go.wait(20)
        return vitreous.load(path, **options)

    with running(runs["vit"], load=load, wait=False, drain=0.5) as server:
        assert server.client.get("/livez").json() == {"status": "alive"}
        for answer in (
            server.client.get("/readyz"),
            server.client.get("/v1/models"),
            server.client.post(PATH, files=files(photos)),
        ):
            refused(answer, 503, "not-ready")
        go.set()
        until(lambda: server.client.get("/readyz").status_code == 200)
        assert server.client.post(PATH, files=files(photos)).status_code == 200
        server.server.handle_exit(signal.SIGTERM, None)
        # while the port is open, whoever watches is told, and whoever comes is served
        assert "stopping" in refused(server.client.get("/readyz"), 503, "not-ready")["detail"]
        assert server.client.get("/livez").status_code == 200
        assert server.client.post(PATH, files=files(photos)).status_code == 200


def test_what_was_accepted_is_answered_before_the_end(runs, photos):
    with running(runs["vit"], load=slow(0.1), batch=1) as server:
        with ThreadPoolExecutor(10) as threads:

            def ask(_):
                return httpx.post(server.url + PATH, files=files(photos[:1]), timeout=30)

            asked = [threads.submit(ask, None) for _ in range(10)]
            until(lambda: server.metric("vitreous_queue_images", model="vit") >= 7)
            server.server.handle_exit(signal.SIGTERM, None)
            assert [each.result().status_code for each in asked] == [200] * 10
        until(lambda: not server.server.server_state.connections)
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url + "/livez")


@contextmanager
def process(*words):
    """`vitreous serve` as it is started by people; its port is free, its log is kept."""
    command = [sys.executable, "-m", "vitreous", "serve", "--port", "0", *map(str, words)]
    environment = os.environ | {"PYTHONPATH": os.path.dirname(os.path.dirname(vitreous.__file__))}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as child:
        lines = []
        reading = threading.Thread(target=lambda: lines.extend(child.stderr))
        reading.start()
        try:
            until(lambda: any('"listening"' in line for line in lines) or child.poll(), 120)
            address = re.search(r"http://[\d.:]+", "".join(lines))
            yield child, address[0] if address else "", lines
        finally:
            if child.poll() is None:
                child.kill()
            reading.join()


def is_ready(url):
    try:
        return httpx.get(url + "/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_sigterm_under_load_and_workers(runs, photos):
    """Two processes: one is killed and replaced; SIGTERM loses nothing that was accepted; the log
    is JSON, metrics are those of both."""
    with process(runs["vit"], "--workers", 2, "--host", "127.0.0.1") as (child, url, lines):
        until(lambda: is_ready(url), 120)

        def ready():
            text = httpx.get(url + "/metrics").text
            return float(re.search(r"^vitreous_ready_workers (\S+)", text, re.M)[1])

        until(lambda: ready() == 2, 120)
        for _ in range(20):
            assert httpx.post(url + PATH, files=files(photos)).status_code == 200
        text = httpx.get(url + "/metrics").text
        assert re.search(r'^vitreous_images_total{.*"vit"} 100.0', text, re.M)
        workers = children(child.pid)
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: ready() == 2 and workers[0] not in children(child.pid), 120)
        codes, stop = [], threading.Event()

        def ask():
            """Answers that were begun must come; a connection may be refused, at the end."""
            while not stop.is_set():
                try:
                    codes.append(httpx.post(url + PATH, files=files(photos)).status_code)
                except httpx.ConnectError:
                    return
                except httpx.TransportError as error:
                    codes.append(error)

        with ThreadPoolExecutor(4) as threads:
            asked = [threads.submit(ask) for _ in range(4)]
            until(lambda: len(codes) > 8)
            child.send_signal(signal.SIGTERM)
            assert child.wait(30) == 0
            time.sleep(0.1)
            stop.set()
            [each.result() for each in asked]
        assert set(codes) == {200}, codes
    records = [json.loads(line) for line in lines]
    events = {"listening", "ready", "request", "worker died", "stopped"}
    assert events == {each["event"] for each in records}
    request = next(each for each in records if each.get("path") == PATH)
    assert request["status"] == 200
    assert request["images"] == 5
    assert len(request["id"]) == 16


def test_workers_that_die_at_once_end_the_server(monkeypatch):
    """Not restarted without end: whoever watches over the server must see it."""
    monkeypatch.setattr(server_module, "RESTART_SECONDS", 0.0)
    monkeypatch.setattr(server_module, "_worker", die)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")  # and gone behind the test
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    settings = Settings({"vit": "vit"}, port=0, workers=2)
    try:
        with (
            server_module.listening(settings) as port,
            pytest.raises(
                server_module.WorkersDiedError, match="5 workers died one after the other"
            ) as e,
        ):
            server_module._supervise(settings, None, port)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert e.value.code == 1
    assert not multiprocessing.active_children()


def test_answers_do_not_wait_for_a_confirmation(runs):
    """The head of an answer and its body are two packets; TCP would hold the second one back."""
    with running(runs["vit"]) as server:
        assert server.client.get("/livez").status_code == 200
        (connection,) = server.server.server_state.connections
        line = connection.transport.get_extra_info("socket")
        assert line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_threads_that_compute_give_way():
    with computing_threads(1, "test") as threads:

        def priorities():
            with ThreadPoolExecutor(1) as started:
                return own(), started.submit(own).result()

        assert threads.submit(priorities).result() == (own() + NICE, own() + NICE)


def own():
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def children(pid):
    """Worker processes; python has another one, which watches over shared memory."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        found = [int(number) for number in file.read().split()]
    return [each for each in found if b"spawn_main" in command_of(each)]


def command_of(pid):
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        return file.read()


def test_an_open_address_without_a_token_warns(runs, monkeypatch):
    said = []
    monkeypatch.setattr("vitreous.serve.server.serve", lambda settings, load: None)
    vitreous.serve([str(runs["vit"])], host="0.0.0.0", log=said.append)
    assert "without --token FILE" in said[0]
    vitreous.serve([str(runs["vit"])], log=said.append)
    assert len(said) == 1
