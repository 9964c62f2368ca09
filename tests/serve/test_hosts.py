"""Names by which a server may be asked: a page whose name was given this machine's address (DNS
rebinding) is refused."""

import socket

import httpx
import pytest
from serve.running import running_as

import vitreous
from vitreous.cli.main import main
from vitreous.serve.gate import Hosts, is_loopback
from vitreous.serve.served import named_models
from vitreous.serve.settings import Settings

LOOPBACK = ["localhost", "localhost:8000", "LocalHost:1", "localhost.", "127.0.0.1:8000", "[::1]"]
LOOPBACK += ["127.8.9.1", "[::1]:8000", "[::ffff:127.0.0.1]:80", "localhost:"]
FOREIGN = ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"]
FOREIGN += ["evil.example.", "", "localhost:8000:1", "a@localhost", "localhost/", "[::1", "\xff"]


def allows(hosts, name):
    return hosts.allow(name.encode("latin-1"))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_on_loopback_only_loopback_names(host):
    hosts = Hosts.of(host, ())
    assert all(allows(hosts, name) for name in LOOPBACK)
    refused = [*FOREIGN, "10.0.0.1", "0.0.0.0:8000", "[2001:db8::1]", socket.gethostname() + "x"]
    assert not any(allows(hosts, name) for name in refused)
    assert hosts.allow(None)  # HTTP/1.0, as some load balancers ask; browsers always send a host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5"])
def test_open_to_others_every_address_and_the_machines_name(host, monkeypatch):
    """Ports are forwarded from addresses that the server does not know, and Kubernetes probes by
    the address of the pod; neither can be rebound."""
    monkeypatch.setattr(socket, "gethostname", lambda: "Box.lan")
    hosts = Hosts.of(host, ())
    known = [*LOOPBACK, "10.0.0.1:8000", "[2001:db8::1]:8000", "192.168.1.5", "box.lan", "BOX:80"]
    assert all(allows(hosts, name) for name in known)
    assert not any(allows(hosts, name) for name in [*FOREIGN, "box.evil.example"])


def test_names_that_are_added():
    hosts = Hosts.of("models.lan", ("Models.Example.org.", "müller.example", "[2001:DB8::1]"))
    for name in (
        "models.lan:8000",
        "models.example.org",
        "xn--mller-kva.example",
        "[2001:db8:0::1]",
    ):
        assert allows(hosts, name)
    assert not allows(hosts, "example.org")
    assert all(allows(Hosts.of("127.0.0.1", ("*",)), name) for name in FOREIGN)
    assert [is_loopback(host) for host in ("localhost", "::1", "0.0.0.0", "a")] == [1, 1, 0, 0]


@pytest.mark.parametrize("name", ["http://a.example", "a.example:80", "a b", "", "a..b"])
def test_a_name_that_cannot_be_one(name, runs, capsys):
    assert main(["serve", str(runs["vit"]), "--allow-host", name]) == 2
    assert f"--allow-host {name}: expected a name" in capsys.readouterr().err


@pytest.fixture(scope="module")
def server(runs):
    settings = Settings(named_models([str(runs["vit"])]), allow_hosts=("models.example.org",))
    with running_as(settings, vitreous.load) as found:
        yield found


@pytest.mark.parametrize("path", ["/", "/v1/models", "/openapi.json", "/metrics", "/livez"])
def test_a_rebound_page_reads_nothing(server, path):
    page = {"Host": "evil.example", "Origin": "http://evil.example"}
    answer = server.client.get(path, headers={**page, "Sec-Fetch-Site": "same-origin"})
    assert (answer.status_code, answer.headers["content-type"]) == (421, "application/problem+json")
    problem = answer.json()
    assert problem["type"] == "urn:vitreous:problem:wrong-host"
    assert problem["title"] == "Misdirected Request"
    assert "'evil.example'" in problem["detail"]
    assert "--allow-host" in problem["detail"]


def test_a_rebound_page_sends_nothing(server, photos):
    page = {"Host": "evil.example", "Origin": "http://evil.example"}
    files = {"image": photos[0].read_bytes()}
    for more in ({"Sec-Fetch-Site": "same-origin"}, {}):
        answer = server.client.post("/v1/models/vit/predict", files=files, headers={**page, **more})
        assert answer.status_code == 421


def test_own_names_are_answered(server):
    port = httpx.URL(server.url).port
    for name in (f"localhost:{port}", "127.0.0.1", "models.example.org"):
        assert server.client.get("/v1/models", headers={"Host": name}).status_code == 200


def test_a_request_without_host(server):
    url = httpx.URL(server.url)
    for head, status in (("GET /livez HTTP/1.0", b"200"), ("GET /livez HTTP/1.1", b"400")):
        with socket.create_connection((url.host, url.port), timeout=10) as line:
            line.sendall(f"{head}\r\n\r\n".encode())
            assert line.recv(4096).split()[1] == status


def test_every_route_describes_it(server):
    paths = server.client.get("/openapi.json").json()["paths"]
    operations = [(path, each) for path, of in paths.items() for each in of.values()]
    assert [path for path, each in operations if "421" not in each["responses"]] == []
