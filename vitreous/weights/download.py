"""Files from the network: announced on stderr, checked by their hashes, and cached."""

from __future__ import annotations

import hashlib
import http.client
import os
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from vitreous.atomic_write import making_folder, naming_file, renaming
from vitreous.errors import HubError
from vitreous.terminal import print


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
    try:
        with making_folder(target.parent), renaming(target) as partial:
            digest = _download(address, partial, target)
            if not digest.startswith(sha256):
                raise HubError(
                    f"{address}: the file's hash begins with {digest[:8]}, not with the published "
                    f"{sha256}: it is damaged or was replaced, and was deleted"
                )
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise HubError(
            f"{address} cannot be downloaded ({reason}): check the network, or download it "
            f"elsewhere and copy it to {target}"
        ) from error
    return target


def _download(address: str, path: Path, target: Path) -> str:
    """Download a file completely, and return its SHA-256. It is for `target`, which errors name."""
    digest, size = hashlib.sha256(), 0
    with naming_file(target):
        file = path.open("wb")
    with file, urllib.request.urlopen(address, timeout=60) as response:
        announced = response.headers.get("Content-Length")
        announce(f"downloading {address}", int(announced or 0))
        while chunk := response.read(1 << 20):
            digest.update(chunk)
            size += len(chunk)
            with naming_file(target):
                file.write(chunk)
                file.flush()
    if announced is not None and size != int(announced):
        raise HubError(f"{address}: only {size:,} of {int(announced):,} bytes arrived; try again")
    return digest.hexdigest()


def announce(what: str, size: int = 0) -> None:
    """Say what is downloaded, and how many bytes it has if they are known."""
    print(f"{what}, {size / 1e6:,.1f} MB" if size else what, file=sys.stderr)
