"""Find a checkpoint by path, by hub reference (`hf:owner/name[@revision]`) or by catalog name.

Only the last two download anything: to name one is to ask for it, and HF_HUB_OFFLINE=1 forbids it.
Downloads are cached."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from vitreous.errors import CheckpointError, HubError, did_you_mean
from vitreous.weights.catalog import catalog, entries_for, find_entry

WANTED = ["config.json", "preprocessor_config.json", "pytorch_model.bin"]
WANTED += ["*.safetensors", "*.safetensors.index.json"]
_REFERENCE = re.compile(r"hf:(?P<repo>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>\w[\w./-]*))?")


def resolve(reference: str) -> Path:
    """The local path of a checkpoint."""
    entry = None if Path(reference).exists() else find_entry(reference)
    if entry is not None:
        if entry.address.startswith("https://"):
            return fetch(entry.address, entry.sha256)
        reference = entry.address
    if reference.startswith("hf:"):
        return _from_hub(reference)
    if "://" in reference:
        raise CheckpointError(
            f"{reference}: only URLs of the catalog are downloaded ('vitreous models --weights'); "
            "download the file yourself and pass its path, or use a hub reference, hf:owner/name"
        )
    several = [each.name for each in entries_for(reference)]
    if several and not Path(reference).exists():
        raise CheckpointError(
            f"{reference}: the catalog has several weights for it: name one of {', '.join(several)}"
        )
    hint = "" if Path(reference).exists() else did_you_mean(reference, catalog())
    if hint:
        raise CheckpointError(f"{reference}: no such file or catalog entry{hint}")
    return Path(reference)


def offline() -> bool:
    """Whether downloads are forbidden, by the switch that the hub's own library has."""
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")


def cache_folder() -> Path:
    """The download cache: $VITREOUS_CACHE, or `vitreous` in the user's cache folder."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "vitreous"
    return Path(os.environ.get("VITREOUS_CACHE", default))


def fetch(address: str, sha256: str = "") -> Path:
    """The file at `address`, from the cache or the network; its hash must begin with `sha256`."""
    parts = urllib.parse.urlsplit(address)
    target = cache_folder() / parts.netloc.replace(":", "_") / parts.path.lstrip("/")
    if target.is_file():
        return target
    if offline():
        raise HubError(
            f"{address} is not in the cache ({target}), and HF_HUB_OFFLINE forbids downloading it"
        )
    partial = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = _download(address, partial)
        if not digest.startswith(sha256):
            raise HubError(
                f"{address}: the file's hash begins with {digest[:8]}, not with the published "
                f"{sha256}: it is damaged or was replaced, and was deleted"
            )
        os.replace(partial, target)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise HubError(
            f"{address} cannot be downloaded ({reason}): check the network, or download it "
            f"elsewhere and copy it to {target}"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    return target


def _download(address: str, path: Path) -> str:
    """Download a file completely, and return its SHA-256."""
    digest, size = hashlib.sha256(), 0
    with urllib.request.urlopen(address, timeout=60) as response, path.open("wb") as file:
        announced = response.headers.get("Content-Length")
        while chunk := response.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
            file.write(chunk)
    if announced is not None and size != int(announced):
        raise HubError(f"{address}: only {size:,} of {int(announced):,} bytes arrived; try again")
    return digest.hexdigest()


def _from_hub(reference: str) -> Path:
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise HubError(f"{reference!r}: expected hf:owner/name[@revision]")
    # Imported here because it is slow to import.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repo, revision = found["repo"], found["revision"]
    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=WANTED))
    except LocalEntryNotFoundError as error:
        raise HubError(
            f"{reference}: the hub cannot be reached and the repository is not in the cache; "
            "check the network (and HF_HUB_OFFLINE, HF_ENDPOINT), or download it elsewhere and "
            "pass the folder's path"
        ) from error
    except HfHubHTTPError as error:
        raise HubError(
            f"{reference}: the hub answered {error.response.status_code}: is the name correct? For "
            "a private repository, set HF_TOKEN"
        ) from error
    except (HFValidationError, OSError) as error:
        raise HubError(f"{reference}: {error}") from error
