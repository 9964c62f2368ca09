"""Hub references and fetched files, against a small server on this machine; never the internet."""

import hashlib
import json
import os
import subprocess
import sys
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
    """A hub with one repository, tiny/vit, and plain files under /files."""
    folder = tmp_path / "repo"
    folder.mkdir()
    model = vitreous.create("vit", **FIELDS)
    tensors = vitreous.export_weights(model, "timm")
    write_tensors(folder / "model.safetensors", tensors, "safetensors")
    (folder / "README.md").write_text("not wanted")
    asked = []

    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            self.answer(body=True)

        def do_HEAD(self):
            self.answer(body=False)

        def answer(self, body):
            asked.append(self.path)
            name = self.path.rpartition("/")[2]
            if self.path.startswith("/api/models/tiny/vit/tree"):
                tree = [
                    {"type": "file", "path": path.name, "size": path.stat().st_size, "oid": "0"}
                    for path in folder.iterdir()
                ]
                data = json.dumps(tree).encode()
            elif self.path.startswith("/api/models/tiny/vit"):
                files = [{"rfilename": path.name} for path in folder.iterdir()]
                data = json.dumps({"id": "tiny/vit", "sha": COMMIT, "siblings": files}).encode()
            elif (
                self.path.startswith(("/tiny/vit/resolve/", "/files/", "/short/"))
                and (folder / name).exists()
            ):
                data = (folder / name).read_bytes()
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.end_headers()
                return
            self.send_response(200)
            missing = 1000 if self.path.startswith("/short/") else 0
            self.send_header("Content-Length", str(len(data) + missing))
            self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if body:
                self.wfile.write(data)

        def log_message(self, *_):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    running.address = f"http://127.0.0.1:{running.server_port}"
    running.asked = asked
    running.folder = folder
    yield running
    running.shutdown()
    running.server_close()


def in_fresh_python(code, tmp_path, **environment):
    """huggingface_hub reads its settings when it is imported."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    settings = {"HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**clean, **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


IMPORT = f"""
import vitreous
model = vitreous.create("vit", **{FIELDS})
try:
    print(vitreous.import_weights(model, "REFERENCE").format)
    print(*vitreous.load("REFERENCE").labels)
except vitreous.errors.HubError as error:
    print("HubError:", error)
"""


def test_repository_is_downloaded_cached_and_then_read_offline(server, tmp_path):
    code = IMPORT.replace("REFERENCE", "hf:tiny/vit@main")
    prepared = {"mean": [0.5], "std": [0.5], "crop_pct": 1.0, "interpolation": "bicubic"}
    config = {"architecture": "vit_base_patch16_224", "label_names": list("abcd")}
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 2}
    config |= {"num_classes": 4, "model_args": sizes, "pretrained_cfg": prepared}
    (server.folder / "config.json").write_text(json.dumps(config))
    settings = {"HF_ENDPOINT": server.address, "VITREOUS_CACHE": str(tmp_path / "cache")}
    first = in_fresh_python(code, tmp_path, **settings)
    assert first.stdout.split() == ["timm", *"abcd"], first.stderr
    assert not any("README" in path for path in server.asked), "only weights are wanted"
    (made,) = (tmp_path / "cache" / "runs").iterdir()
    written = (made / "config.json").stat().st_mtime_ns
    offline = in_fresh_python(code, tmp_path, **settings, HF_HUB_OFFLINE="1")
    assert offline.stdout.split() == ["timm", *"abcd"], offline.stderr
    assert (made / "config.json").stat().st_mtime_ns == written, "imported once"


def test_no_network_and_wrong_name_say_what_to_do(server, tmp_path):
    code = IMPORT.replace("REFERENCE", "hf:tiny/vit")
    nowhere = in_fresh_python(code, tmp_path, HF_ENDPOINT="http://127.0.0.1:9")
    assert "HubError: hf:tiny/vit: the hub cannot be reached" in nowhere.stdout, nowhere.stderr
    code = IMPORT.replace("REFERENCE", "hf:tiny/vti")
    wrong = in_fresh_python(code, tmp_path, HF_ENDPOINT=server.address)
    assert "HubError: hf:tiny/vti: the hub answered 404: " in wrong.stdout


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

    from vitreous.weights.rules.formats import find_format
    from vitreous.weights.rules.keys import family_of

    assert len(catalog()) >= 40
    built = {}
    for entry in catalog().values():
        assert isinstance(entry, CatalogEntry)
        key = (entry.model, json.dumps(entry.changes), entry.format)
        if key not in built:
            with torch.device("meta"):
                deep = entry.model.startswith(("resnet", "swin", "detr"))
                shallow = {} if deep else {"depth": 1}
                built[key] = vitreous.create(entry.model, **entry.changes, **shallow)
            find_format(entry.format, family_of(built[key]))
        size = entry.preprocessing.image_size
        if "resnet" not in entry.model:
            assert built[key].config.image_size == (size, size), entry.name
        assert len(entry.preprocessing.mean) == len(entry.preprocessing.std) == 3
        assert entry.accuracy is None or 0.5 < entry.accuracy < 0.95
        assert (entry.ap is not None) == entry.model.startswith("detr")
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
    monkeypatch.setattr(hub, "_download", lambda address, path: path.write_text(address) and "")
    entries = [e for e in catalog().values() if e.address.startswith("https://")]
    paths = {hub.fetch(entry.address) for entry in entries}
    assert len(paths) == len({entry.address for entry in entries})


def test_a_download_that_breaks_off_is_not_kept(server, monkeypatch, tmp_path):
    monkeypatch.setenv("VITREOUS_CACHE", str(tmp_path / "cache"))
    with pytest.raises(HubError, match=r"of 81,224 bytes|cannot be downloaded"):
        hub.fetch(f"{server.address}/short/model.safetensors")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
