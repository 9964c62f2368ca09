"""Hub references and fetched files, against a small server on this machine; never the internet."""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import vitreous
from vitreous.errors import CheckpointError, HubError
from vitreous.weights import hub
from vitreous.weights.catalog import CatalogEntry, catalog, find_entry
from vitreous.weights.io.files import write_tensors

FIELDS = {"image_size": 32, "patch": 8, "dim": 32, "depth": 1, "heads": 2, "classes": 4}
COMMIT = "a" * 40


@pytest.fixture
def server(tmp_path):
    """A hub with one repository, tiny/vit, and plain files under /files.

    `status` and `error` are what it answers instead; `sha256` is what it states of the weights;
    of the files in `cut` only the beginning arrives."""
    folder = tmp_path / "repo"
    folder.mkdir()
    model = vitreous.create("vit", **FIELDS)
    tensors = vitreous.export_weights(model, "timm")
    write_tensors(folder / "model.safetensors", tensors, "safetensors")
    (folder / "README.md").write_text("not wanted")

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(body=True)

        def do_HEAD(self):
            self.answer(body=False)

        def answer(self, body):
            hub = self.server
            hub.asked.append(self.path)
            hub.tokens.add(self.headers.get("Authorization"))
            name = self.path.partition("?")[0].rpartition("/")[2]
            known = self.path.startswith(("/api/models/tiny/vit", "/tiny/vit/", "/files/"))
            listing = self.path.startswith("/api/")
            if not known or (hub.status and not (listing and hub.lists)):
                return self.refuse(hub.status or 404, hub.error)
            if "/revision/none" in self.path:
                return self.refuse(404, "RevisionNotFound")
            if not listing and not (folder / name).exists():
                return self.refuse(404, "EntryNotFound")
            data = hub.listing(self.path) if listing else (folder / name).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            digest = hashlib.sha256(data).hexdigest() if listing else hub.sha256_of(name)
            self.send_header("ETag", f'"{digest}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(data[:100] if name in hub.cut else data)

        def refuse(self, status, error):
            self.send_response(status)
            self.send_header("X-Error-Code", error)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        def __init__(self):
            super().__init__(("127.0.0.1", 0), Hub)
            self.address = f"http://127.0.0.1:{self.server_port}"
            self.folder, self.asked, self.tokens, self.cut = folder, [], set(), set()
            self.status, self.error, self.lists, self.sha256 = 0, "RepoNotFound", False, {}

        def sha256_of(self, name):
            own = hashlib.sha256((folder / name).read_bytes()).hexdigest()
            return self.sha256.get(name, own)

        def listing(self, path):
            files = [
                {
                    **{"type": "file", "path": file.name, "rfilename": file.name, "oid": "0"},
                    **{"size": (size := file.stat().st_size), "blobId": "0"},
                    "lfs": {"oid": (digest := self.sha256_of(file.name)), "sha256": digest}
                    | {"size": size, "pointerSize": 100},
                }
                for file in sorted(folder.iterdir())
            ]
            card = {"license": "other", "license_name": "tiny-licence"}
            info = {"id": "tiny/vit", "sha": COMMIT, "siblings": files, "cardData": card}
            return json.dumps(files if "/tree" in path else info).encode()

        def got(self, name):
            """How often a file was downloaded or its state was asked for."""
            return sum(path.endswith(f"/{name}") for path in self.asked)

    running = Server()
    thread = threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture
def here(server, tmp_path, monkeypatch):
    """huggingface_hub in this process, with that server as its hub and an empty cache."""
    from huggingface_hub import constants

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", server.address)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    return server


def test_repository_is_downloaded_imported_once_and_then_read_offline(here, tmp_path, monkeypatch):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    prepared = {"mean": [0.5], "std": [0.5], "crop_pct": 1.0, "interpolation": "bicubic"}
    config = {"architecture": "vit_base_patch16_224", "label_names": list("abcd")}
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 2}
    config |= {"num_classes": 4, "model_args": sizes, "pretrained_cfg": prepared}
    (here.folder / "config.json").write_text(json.dumps(config))
    assert list(vitreous.load("hf:tiny/vit@main").labels) == list("abcd")
    assert not here.got("README.md"), "only weights are wanted"
    (made,) = (tmp_path / "cache" / "runs").iterdir()
    written = (made / "config.json").stat().st_mtime_ns
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = len(here.asked)
    assert list(vitreous.load("hf:tiny/vit@main").labels) == list("abcd")
    model = vitreous.create("vit", **FIELDS)
    assert vitreous.import_weights(model, "hf:tiny/vit").format == "timm"
    assert len(here.asked) == asked
    assert (made / "config.json").stat().st_mtime_ns == written, "imported once"


def test_no_network_says_what_to_do(here, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError, match="hf:tiny/vit: the hub cannot be reached, or the connection"):
        hub.resolve("hf:tiny/vit")


def test_of_several_weights_one_is_downloaded_and_said(here, capsys, monkeypatch):
    for name in ("open_clip_model.safetensors", "pytorch_model.bin", "flax_model.msgpack"):
        (here.folder / name).write_bytes(b"0")
    (here.folder / "config.json").write_text("{}")
    folder = hub.resolve("hf:tiny/vit")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert "downloading model.safetensors, config.json, 0.1 MB" in capsys.readouterr().err
    assert hub.resolve("hf:tiny/vit") == folder
    assert here.got("model.safetensors") == 2, "a HEAD and a GET, once"
    assert "downloading" not in capsys.readouterr().err
    asked = len(here.asked)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert hub.resolve("hf:tiny/vit") == folder
    assert len(here.asked) == asked
    monkeypatch.delenv("HF_HUB_OFFLINE")
    here.status, here.error = 503, ""
    assert hub.resolve("hf:tiny/vit") == folder
    assert "answered 503" in capsys.readouterr().err


def test_all_pieces_of_sharded_weights_are_downloaded(here):
    names = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for name in names:
        (here.folder / name).write_bytes(b"0")
    (here.folder / "model.safetensors").rename(here.folder / "other.safetensors")
    (here.folder / "model.safetensors.index.json").write_text("{}")
    folder = hub.resolve("hf:tiny/vit@main")
    assert {path.name for path in folder.iterdir()} == {*names, "model.safetensors.index.json"}


def test_nothing_is_asked_where_downloads_are_forbidden(here, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubError, match="hf:tiny/vit is not in the cache, and HF_HUB_OFFLINE"):
        hub.resolve("hf:tiny/vit")
    assert not here.asked


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("token", [None, "hf_abc"])
def test_a_gated_repository_says_what_to_accept_and_where(here, monkeypatch, status, token):
    """The hub lists such a repository for everybody, and refuses its files."""
    here.status, here.error, here.lists = status, "GatedRepo", True
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    address = re.escape(f"{here.address}/tiny/vit")
    way = "the token that you use has no access" if token else "HF_TOKEN, or store one"
    with pytest.raises(HubError, match=rf"gated.*\(tiny-licence\).*{address} .*{way}"):
        hub.resolve("hf:tiny/vit")
    assert (f"Bearer {token}" in here.tokens) == (token is not None)


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("hf:tiny/vti", "no such repository, or it is private: is the name correct"),
        ("hf:openai/clip-vit-base-patch23", "did you mean 'hf:openai/clip-vit-base-patch32'"),
        ("hf:tiny/vit@none", "has no branch, tag or commit 'none'"),
    ],
)
def test_what_the_hub_does_not_have_is_named(here, reference, message):
    with pytest.raises(HubError, match=message):
        hub.resolve(reference)


def test_a_repository_without_weights_lists_what_it_has(here):
    (here.folder / "model.safetensors").rename(here.folder / "weights.onnx")
    with pytest.raises(
        HubError, match=r"none of model.safetensors.*it has README.md, weights.onnx"
    ):
        hub.resolve("hf:tiny/vit")


def test_a_wrong_hash_is_an_error_and_the_file_is_deleted(here, tmp_path):
    here.sha256 = {"model.safetensors": "0" * 64}
    with pytest.raises(HubError, match=r"begins with \w{8}, not with the hub's 00000000.*deleted"):
        hub.resolve("hf:tiny/vit")
    assert not [p for p in (tmp_path / "hub").rglob("*") if p.is_file() and p.stat().st_size > 5000]
    here.sha256 = {}
    assert hub.resolve("hf:tiny/vit").is_dir()


def test_a_connection_that_breaks_is_an_error_and_the_next_try_works(here, monkeypatch):
    from huggingface_hub import file_download

    monkeypatch.setattr(file_download.time, "sleep", lambda seconds: None)
    here.cut = {"model.safetensors"}
    with pytest.raises(HubError, match="hf:tiny/vit: the hub cannot be reached, or the connection"):
        hub.resolve("hf:tiny/vit")
    here.cut = set()
    assert (hub.resolve("hf:tiny/vit") / "model.safetensors").stat().st_size > 5000


@pytest.mark.parametrize("reference", ["hf:vit", "hf:a/b/c", "hf:../etc", "hf:a/b@"])
def test_malformed_references(reference):
    with pytest.raises(HubError, match=r"hf:owner/name\[@revision\]"):
        hub.resolve(reference)


def test_addresses_are_not_fetched():
    with pytest.raises(CheckpointError, match="download the file"):
        hub.resolve("https://example.org/weights.pth")


def test_files_of_the_catalog_are_fetched_once_and_hashed(server, tmp_path, monkeypatch):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    data = (server.folder / "model.safetensors").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    address = f"{server.address}/files/model.safetensors"
    with pytest.raises(HubError, match="not with the published 00000000"):
        hub.fetch(address, "0" * 8)
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert not kept, "nothing is kept of a wrong file"
    path = hub.fetch(address, digest[:8])
    assert path.read_bytes() == data
    asked = len(server.asked)
    assert hub.fetch(address, digest[:8]) == path
    assert len(server.asked) == asked, "the second time comes from the cache"
    with pytest.raises(HubError, match="cannot be downloaded"):
        hub.fetch(f"{server.address}/files/none.pth")


def test_catalog_names_are_references(monkeypatch):
    wanted = []
    monkeypatch.setattr(hub, "fetch", lambda address, sha256: wanted.append((address, sha256)))
    entry = next(e for e in catalog().values() if e.address.startswith("https://") and e.sha256)
    hub.resolve(entry.name)
    assert wanted == [(entry.address, entry.sha256)]


def test_every_entry_of_the_catalog_builds_a_model():
    """Model, config, classes and format of each entry fit together."""
    import torch

    from vitreous.models import has_words
    from vitreous.weights.towers import rules_of

    assert len(catalog()) >= 40
    built = {}
    for entry in catalog().values():
        assert isinstance(entry, CatalogEntry)
        key = (entry.model, json.dumps(entry.changes), entry.format)
        if key not in built:
            with torch.device("meta"):
                deep = entry.model.startswith(("resnet", "swin")) or "detr" in entry.model
                shallow = {} if deep else {"depth": 1}
                if has_words(entry.model):
                    shallow = {"image.depth": 1, "text.depth": 1}
                built[key] = vitreous.create(entry.model, **entry.changes, **shallow)
            rules_of(built[key], entry.format)
        size = entry.preprocessing.image_size
        if "resnet" not in entry.model:
            assert built[key].config.image_size == (size, size), entry.name
        assert len(entry.preprocessing.mean) == len(entry.preprocessing.std) == 3
        assert entry.accuracy is None or 0.5 < entry.accuracy < 0.95
        assert entry.ap is None or "detr" in entry.model
        assert entry.ap is not None or not entry.model.startswith("detr")
        assert entry.licence


def test_a_models_name_means_its_default_weights(monkeypatch):
    defaults = [entry.model for entry in catalog().values() if entry.default]
    assert len(defaults) == len({*defaults})
    assert find_entry("vit-b/16").name == "vit-b/16.augreg-in21k-ft-in1k-224"
    with pytest.raises(CheckpointError, match=r"several weights for it: name one of vit-h/14\."):
        hub.resolve("vit-h/14")


def test_downloads_can_be_forbidden(monkeypatch, tmp_path):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubError, match="HF_HUB_OFFLINE forbids"):
        hub.fetch("https://example.invalid/w.pth")


def test_a_misspelt_checkpoint_gets_a_suggestion():
    name = next(iter(catalog()))
    with pytest.raises(CheckpointError, match="did you mean"):
        hub.resolve(f"{name}k")


def test_files_of_the_same_name_do_not_meet_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path))
    monkeypatch.setattr(
        hub, "_download", lambda address, path, *more: path.write_text(address) and ""
    )
    entries = [e for e in catalog().values() if e.address.startswith("https://")]
    paths = {hub.fetch(entry.address) for entry in entries}
    assert len(paths) == len({entry.address for entry in entries})


def test_a_download_that_breaks_off_is_not_kept(server, monkeypatch, tmp_path):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    server.cut = {"model.safetensors"}
    with pytest.raises(HubError, match=r"only 100 of 80,224 bytes arrived"):
        hub.fetch(f"{server.address}/files/model.safetensors")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
