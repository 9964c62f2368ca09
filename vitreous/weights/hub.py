"""Find a checkpoint by path, by hub reference (`hf:owner/name[@revision]`) or by catalog name.

Only the last two download anything: to name one is to ask for it, and HF_HUB_OFFLINE=1 forbids it.
What is downloaded is said on stderr, checked by its hash where one is published, and cached."""

from __future__ import annotations

import glob
import hashlib
import http.client
import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from vitreous.atomic_write import making_folder, naming_file, renaming
from vitreous.checksums import file_sha256
from vitreous.errors import CheckpointError, HubError, did_you_mean
from vitreous.terminal import print
from vitreous.text.published import TOKENIZER_FILES
from vitreous.weights.catalog import catalog, entries_for, find_entry, meant
from vitreous.weights.io.files import FOLDER_FILES, SHARD_INDEX
from vitreous.weights.transformers_preprocessor import PREPROCESSOR_FILES

if TYPE_CHECKING:
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.hf_api import RepoSibling

DESCRIPTIONS = ("config.json", *PREPROCESSOR_FILES, *TOKENIZER_FILES)
"""Of the model, the labels, the preprocessing and the texts."""
_SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
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
    if not Path(reference).exists():
        hint = meant(reference) or " ('vitreous models --weights' lists those)"
        raise CheckpointError(f"{reference}: no such file, folder or catalog entry{hint}")
    return Path(reference)


def _from_hub(reference: str) -> Path:
    """The folder in the hub's own cache with the weights and what describes them."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise HubError(f"{reference!r}: expected hf:owner/name[@revision]")
    # Imported here because it is slow to import.
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError

    repo, revision = found["repo"], found["revision"]
    cached = _in_cache(repo, revision)
    if offline():
        if cached is None:
            raise HubError(
                f"{reference} is not in the cache, and HF_HUB_OFFLINE forbids downloading it"
            )
        return cached
    try:
        listing = HfApi().model_info(repo, revision=revision, files_metadata=True)
        files = {each.rfilename: each for each in listing.siblings or ()}
        wanted = _wanted(reference, files)
        new = [name for name in wanted if not _has(cached, name, listing.sha)]
        if new:
            size = sum(files[name].size or 0 for name in new)
            announce(f"{reference}: downloading {', '.join(new)}", size)
        patterns = [glob.escape(name) for name in wanted]
        folder = Path(snapshot_download(repo, revision=revision, allow_patterns=patterns))
        for name in new:
            _check_hash(reference, folder / name, files[name])
    except HFValidationError as error:
        raise HubError(f"{reference}: {error}") from error
    except (HTTPError, OSError) as error:
        problem = (
            _refused(reference, repo, revision, error)
            if isinstance(error, HfHubHTTPError)
            else _broken(reference, error)
        )
        if cached is None:
            raise problem from error
        announce(f"{problem}. The weights in the cache are used")
        return cached
    return folder


def _wanted(reference: str, files: Iterable[str]) -> list[str]:
    """The files of a repository to download: of the weights, which are often there in several
    formats, only those that are read."""
    there = {*files}
    weights = next((name for name in FOLDER_FILES if name in there), None)
    if weights is None:
        some = ", ".join(sorted(there)[:10]) + (" …" if len(there) > 10 else "")
        raise HubError(
            f"{reference}: this repository has none of {', '.join(FOLDER_FILES)}; it has "
            f"{some or 'no files'}. Download the file that you want and pass its path"
        )
    pieces = [name for name in there if _SHARD.fullmatch(name)] if weights == SHARD_INDEX else []
    return [weights, *sorted(pieces), *(name for name in DESCRIPTIONS if name in there)]


def _in_cache(repo: str, revision: str | None) -> Path | None:
    """The folder with the weights that were downloaded before."""
    from huggingface_hub import try_to_load_from_cache

    for name in FOLDER_FILES:
        path = try_to_load_from_cache(repo, name, revision=revision)
        if isinstance(path, str):
            return Path(path).parent
    return None


def _has(cached: Path | None, name: str, commit: str | None) -> bool:
    """Whether the newest state of a file is in the cache, whose folders are called by commits."""
    return cached is not None and cached.name == commit and (cached / name).is_file()


def _check_hash(reference: str, path: Path, listed: RepoSibling) -> None:
    """Of a file that has just arrived; the hub knows the hashes of large files."""
    if listed.lfs is None:
        return
    digest = file_sha256(path)
    if digest != listed.lfs.sha256:
        path.resolve().unlink()
        path.unlink(missing_ok=True)
        raise HubError(
            f"{reference}: the hash of {path.name} begins with {digest[:8]}, not with the hub's "
            f"{listed.lfs.sha256[:8]}: it was damaged on the way, and was deleted; try again"
        )


def _refused(reference: str, repo: str, revision: str | None, error: HfHubHTTPError) -> HubError:
    """What the hub answered, and what to do about it."""
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, GatedRepoError):
        token = (
            "the token that you use has no access"
            if get_token()
            else "then pass a token of that account in the environment as HF_TOKEN, or store one "
            "with 'hf auth login'"
        )
        return HubError(
            f"{reference}: this repository is gated: its owner gives access to those who accept "
            f"{_licence(repo)}. Accept it at {constants.ENDPOINT}/{repo} with your account; {token}"
        )
    if isinstance(error, RevisionNotFoundError):
        return HubError(f"{reference}: the repository has no branch, tag or commit {revision!r}")
    if isinstance(error, RepositoryNotFoundError):
        known = [each.address for each in catalog().values()]
        hint = did_you_mean(reference, known) or ": is the name correct?"
        return HubError(
            f"{reference}: the hub has no such repository, or it is private{hint} For a private "
            "one, set HF_TOKEN"
        )
    return HubError(
        f"{reference}: the hub answered {error.response.status_code}: try again later, or download "
        "the repository elsewhere and pass the folder's path"
    )


def _licence(repo: str) -> str:
    """The licence of a gated repository, which everybody may read."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HTTPError

    try:
        card = HfApi().model_info(repo).card_data
    except (HTTPError, OSError):
        card = None
    name = getattr(card, "license_name", None) or getattr(card, "license", None)
    return f"its licence ({name})" if isinstance(name, str) else "its licence"


def _broken(reference: str, error: Exception) -> HubError:
    return HubError(
        f"{reference}: the hub cannot be reached, or the connection broke "
        f"({str(error) or type(error).__name__}): check the network (and HF_ENDPOINT) and try "
        "again, or download the repository elsewhere and pass the folder's path"
    )


# ---- files from the network


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
