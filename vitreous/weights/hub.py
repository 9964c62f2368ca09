"""Checkpoints by reference: a path, or a repository on a hub (`hf:owner/name[@revision]`)."""

from __future__ import annotations

import re
from pathlib import Path

from vitreous.errors import CheckpointError, HubError

WANTED = ("config.json", "*.safetensors", "*.safetensors.index.json", "pytorch_model.bin", "*.npz")
_REFERENCE = re.compile(r"hf:(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?")


def resolve(reference: str) -> Path:
    """The local path of what a user named; hub repositories are downloaded once and cached."""
    if reference.startswith("hf:"):
        return _download(reference)
    if "://" in reference:
        raise CheckpointError(
            f"{reference}: Vitreous does not fetch addresses; download the file and give its path, "
            "or use a hub reference such as hf:owner/name"
        )
    return Path(reference)


def _download(reference: str) -> Path:
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise HubError(
            f"{reference!r}: a hub reference reads hf:owner/name or hf:owner/name@revision"
        )
    # huggingface_hub takes half a second to import: only who needs it pays for it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    repo, revision = found["repo"], found["revision"]
    try:
        folder = snapshot_download(repo, revision=revision, allow_patterns=list(WANTED))
    except LocalEntryNotFoundError as error:
        raise HubError(
            f"{reference}: the hub cannot be reached and the repository is not in the cache; "
            "check the network (or HF_HUB_OFFLINE, HF_ENDPOINT), or download it elsewhere and give "
            "the folder's path"
        ) from error
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "an error")
        raise HubError(
            f"{reference}: the hub answered {status}: is the name right, and the repository public "
            "(else set HF_TOKEN)?"
        ) from error
    except (HFValidationError, OSError) as error:
        raise HubError(f"{reference}: {error}") from error
    return Path(folder)
