"""What a server does not take: long bodies, slow clients, more work than it can do."""

import os
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from serve.running import running, slow, until
from serve.test_app import PNG, files, refused

from vitreous.client import Client, ServerError

PATH = "/v1/models/vit/predict"


def connected(server):
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def sent(server, head, chunks=()):
    """All that comes back for a request that is written by hand."""
    with connected(server) as line:
        line.sendall(head)
        try:
            for chunk in chunks:
                line.sendall(chunk)
        except OSError:  # the server may hang up on what it has refused
            pass
        return received(line)


def received(line):
    parts = []
    try:
        while part := line.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def head(*lines, method="POST", path=PATH):
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", "")).encode()


def resident():
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def gated():
    """A gate that holds models until it is set, which it is; what loads them; and those."""
    gate, loads = threading.Event(), []

    def load(path, **options):
        loads.append(slow(0, gate)(path, **options))
        return loads[0]

    gate.set()
    return gate, load, loads


FORM = "Content-Type: multipart/form-data; boundary=x"
FORM_START = b'--x\r\nContent-Disposition: form-data; name="a"; filename="a.png"\r\n\r\n'


@pytest.mark.parametrize("kind", ["raw", "form", "json"])
@pytest.mark.parametrize("chunked", [True, False])
def test_a_long_body_is_refused_while_it_comes(kind, chunked, runs):
    """100 MB are offered; memory rises by less than twice the limit of 10 MB, and the connection
    ends long before all of it was sent."""
    types = {"raw": "Content-Type: image/png", "form": FORM}
    first = {"form": FORM_START, "json": b'{"images": ["'}.get(kind, b"")
    block = first + b"A" * (1_000_000 - len(first))
    blocks = (block, *[b"A" * 1_000_000] * 99)
    size = b"%x\r\n" % 1_000_000
    length = "Transfer-Encoding: chunked" if chunked else "Content-Length: 100000000"
    with running(runs["vit"]) as server:
        risen = []
        while not risen or (min(risen) >= 20_000_000 and len(risen) < 3):
            # In one process with other tests, whose threads may still take memory: not every time.
            before, most, done = resident(), 0, threading.Event()

            def watch(done=done):
                nonlocal most
                while not done.wait(0.002):
                    most = max(most, resident())

            watching = threading.Thread(target=watch)
            watching.start()
            chunks = (size + each + b"\r\n" for each in blocks) if chunked else blocks
            answer = sent(
                server, head(types.get(kind, "Content-Type: application/json"), length), chunks
            )
            done.set()
            watching.join()
            risen.append(most - before)
            assert answer.startswith(b"HTTP/1.1 413 "), answer[:200]
            assert b"urn:vitreous:problem:body-too-large" in answer
            assert b"connection: close" in answer
        assert min(risen) < 20_000_000
        assert server.client.get("/readyz").status_code == 200


def test_a_body_of_just_the_limit(runs, photos):
    data = photos[0].read_bytes()
    with running(runs["vit"], body=len(data)) as server:
        assert server.client.post(PATH, content=data, headers=PNG).status_code == 200
        refused(server.client.post(PATH, content=data + b"a", headers=PNG), 413, "body-too-large")
        parts = iter([data, b"a"])
        refused(server.client.post(PATH, content=parts, headers=PNG), 413, "body-too-large")


def test_images_of_a_request(runs, photos):
    with running(runs["vit"], images=3) as server:
        assert server.client.post(PATH, files=files(photos[:3])).status_code == 200
        problem = refused(server.client.post(PATH, files=files(photos)), 422, "cannot-be-used")
        assert problem["limit"] == 3
        images = {"images": ["aaaa"] * 4}
        refused(server.client.post(PATH, json=images), 422, "cannot-be-used")
    with running(runs["vit"], explain_queue=2) as server:  # more than will ever fit
        answer = server.client.post("/v1/models/vit/explain", files=files(photos[:3]))
        assert refused(answer, 422, "cannot-be-used")["limit"] == 2


def test_slow_clients_are_hung_up_on(runs, photos):
    """Half a head, half a body, and half the head of a second request; others are served."""
    limits = {"head": 0.3, "upload": 0.3, "idle": 0.5}
    with running(runs["vit"], **limits) as server:
        lines = [connected(server) for _ in range(50)]
        for line in lines:
            line.sendall(b"POST /v1/models/vit/predict HTTP/1.1\r\nHost: localhost\r\nX-a")
        half, second, silent, idle = (connected(server) for _ in range(4))
        half.sendall(head("Content-Type: image/png", "Content-Length: 1000") + b"abc")
        second.sendall(head(method="GET", path="/livez") + b"GET /li")
        idle.sendall(head(method="GET", path="/livez"))
        began = time.monotonic()
        assert server.client.post(PATH, files=files(photos)).status_code == 200
        assert all(received(line) == b"" for line in (*lines, silent))
        assert received(second).count(b"HTTP/1.1 200") == 1
        assert received(idle).count(b"HTTP/1.1 200") == 1
        answer = received(half)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"urn:vitreous:problem:too-slow" in answer
        assert time.monotonic() - began < 8
        for line in (*lines, half, second, silent, idle):
            line.close()
        until(lambda: len(server.server.server_state.connections) <= 1)


def test_a_connection_stays_open_behind_an_answer_that_came_early(runs):
    """For as long as other idle ones, not for the time in which a head must arrive."""
    with running(runs["vit"], head=0.2, idle=20) as server, connected(server) as line:
        line.sendall(head("Content-Length: 5", path="/v1/models/none/predict"))
        answer = b""
        while not answer.endswith(b"}"):  # head and body may come in two pieces
            answer += line.recv(65536)
        assert answer.startswith(b"HTTP/1.1 404 ")
        line.sendall(b"12345")
        time.sleep(0.5)
        line.sendall(head(method="GET", path="/livez"))
        assert b"HTTP/1.1 200 " in line.recv(65536)


def test_a_drip_is_too_slow(runs):
    """A byte now and then does not keep a head's time from running out."""
    with running(runs["vit"], head=0.5) as server, connected(server) as line:
        began = time.monotonic()
        try:
            for byte in head("X-a: " + "b" * 100):
                line.sendall(bytes([byte]))
                time.sleep(0.05)
        except OSError:
            pass
        assert received(line) == b""
        assert time.monotonic() - began < 4


def test_too_many_connections(runs):
    with running(runs["vit"], connections=5) as server:
        lines = [connected(server) for _ in range(20)]
        until(lambda: len(select.select(lines, [], [], 0)[0]) == 15)  # those were hung up on
        for line in lines:
            line.close()
        until(lambda: not server.server.server_state.connections)
        assert server.client.get("/livez").status_code == 200


def test_overload(runs, photos):
    """What does not fit is refused at once, with a time to come back; the rest is answered."""
    gate, load, loads = gated()
    with running(runs["vit"], load=load, queue=8, images=8, batch=2) as server:
        gate.clear()
        with ThreadPoolExecutor(9) as threads:

            def ask(_):
                return httpx.post(server.url + PATH, files=files(photos[:1]), timeout=30)

            held = [threads.submit(ask, None)]
            until(lambda: len(loads[0].computed) == 2)  # the first is the warm-up
            held += [threads.submit(ask, None) for _ in range(8)]
            until(lambda: server.metric("vitreous_queue_images", model="vit") == 8)
            times = []
            for _ in range(20):
                began = time.perf_counter()
                answer = server.client.post(PATH, files=files(photos))
                times.append(time.perf_counter() - began)
                refused(answer, 429, "queue-full")
                assert int(answer.headers["retry-after"]) >= 1
            assert sorted(times)[10] < 0.05
            gate.set()
            assert [each.result().status_code for each in held] == [200] * 9
        assert server.metric("vitreous_rejections_total", problem="queue-full") == 20
        assert server.client.post(PATH, files=files(photos)).status_code == 200


def test_explaining_has_a_queue_of_its_own(runs, photos):
    with running(runs["vit"], explain_queue=1, images=1) as server:
        with ThreadPoolExecutor(12) as threads:
            address = "/v1/models/vit/explain"

            def ask(path):
                return httpx.post(
                    server.url + path, files=files(photos[:1]), timeout=30
                ).status_code

            asked = [threads.submit(ask, address) for _ in range(8)]
            predicted = [threads.submit(ask, PATH) for _ in range(4)]
            assert [each.result() for each in predicted] == [200] * 4
            codes = {each.result() for each in asked}
        assert codes <= {200, 429}
        assert 200 in codes


def test_deadline_and_leaving(runs, photos):
    """Work that nobody waits for is dropped before inference, whether time is up or the client has
    left."""
    gate, load, loads = gated()
    with running(runs["vit"], load=load, deadline=0.8, batch=1) as server:
        gate.clear()
        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(server.client.post, PATH, files=files(photos[:1]))
            until(lambda: len(loads[0].computed) == 2)
            body = photos[1].read_bytes()
            with connected(server) as line:
                line.sendall(head("Content-Type: image/png", f"Content-Length: {len(body)}") + body)
                until(lambda: server.metric("vitreous_queue_images", model="vit") == 1)
            until(lambda: server.metric("vitreous_requests_total", status="499") == 1)
            began = time.monotonic()
            late = server.client.post(PATH, files=files(photos[2:3]))
            assert 0.7 < time.monotonic() - began < 3
            refused(late, 504, "deadline")
            refused(first.result(), 504, "deadline")
            gate.set()
        assert server.client.post(PATH, files=files(photos[3:4])).status_code == 200
        names = [name for batch in loads[0].computed[1:] for name in batch]
        assert names == ["photo 0.png", "photo 3.png"]
        until(lambda: server.metric("vitreous_dropped_images_total", model="vit") == 2)
        assert server.metric("vitreous_queue_images", model="vit") == 0


def test_a_busy_server_is_asked_again(runs, photos):
    gate, load, loads = gated()
    with running(runs["vit"], load=load, queue=1, images=1, batch=1) as server:
        gate.clear()
        with ThreadPoolExecutor(4) as threads:
            client = Client(server.url, timeout=20)
            asked = [threads.submit(client.predict, "vit", photos[0]) for _ in range(4)]
            until(lambda: server.metric("vitreous_rejections_total") > 0)
            until(lambda: len(loads[0].computed) == 2)  # the first is the warm-up
            until(lambda: server.metric("vitreous_queue_images", lane="predict") == 1)
            with pytest.raises(ServerError) as caught:
                Client(server.url, timeout=0.5).predict("vit", photos[0])
            assert (caught.value.status, caught.value.kind) == (429, "queue-full")
            gate.set()
            assert len({each.result()["label"] for each in asked}) == 1


def test_errors_of_ours_tell_nothing(runs, photos, caplog):
    def load(path, **options):
        import vitreous

        predictor = vitreous.load(path, **options)
        answer = predictor.answer

        def broken(prepared, *more):
            if prepared[0].name != "tensor":
                raise RuntimeError("a secret")
            return answer(prepared, *more)

        predictor.answer = broken
        return predictor

    with running(runs["vit"], load=load) as server, caplog.at_level("ERROR"):
        answer = server.client.post(PATH, files=files(photos))
        problem = refused(answer, 500, "internal")
        assert "secret" not in answer.text
        until(lambda: "a secret" in caplog.text)
        assert problem["request_id"]
        assert server.client.get("/livez").status_code == 200
