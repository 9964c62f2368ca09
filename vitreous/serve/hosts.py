"""Which names a server answers to.

A page of another site may give its own name the address of this machine (DNS rebinding). To the
browser it is then the same site as the server, and may read all answers. But the browser says by
which name it asks, in the header Host. An address of numbers cannot be rebound.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from vitreous.errors import ConfigError

ANY_NAME = "*"
EVERYWHERE = ("", "0.0.0.0", "::")
"""What a server is bound to that listens at all addresses of its machine."""
_HOST = re.compile(r"(\[[0-9a-f:.%]+\]|[^\[\]:/@\s]+)(?::\d{0,5})?", re.IGNORECASE)
_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


@dataclass(frozen=True)
class Hosts:
    """The names by which a server may be asked.

    One that listens at loopback alone: the loopback names. Another one: every address of numbers,
    because whoever forwards a port to it, or probes it, calls it by addresses that it does not
    know; and its machine's name. Both: `--host`, and what `--allow-host` adds.
    """

    names: frozenset[str]
    loopback_only: bool

    @classmethod
    def of(cls, host: str, allowed: Sequence[str]) -> Hosts:
        local = is_loopback(host)
        names = {_checked(name) for name in allowed} | {"localhost"}
        if host not in EVERYWHERE:
            names.add(_plain(host))
        if not local:
            own = _plain(socket.gethostname())
            names |= {own, own.partition(".")[0]}
        return cls(frozenset(names), local)

    def allow(self, header: bytes | None) -> bool:
        """By the request's header Host. Without one (HTTP/1.0) no browser has sent it."""
        if header is None or ANY_NAME in self.names:
            return True
        found = _HOST.fullmatch(header.decode("latin-1"))
        if found is None:
            return False
        name = _plain(found[1])
        address = _address(name)
        if address is None:
            return name in self.names
        return not self.loopback_only or address.is_loopback or name in self.names


def is_loopback(host: str) -> bool:
    address = _address(_plain(host))
    return _plain(host) == "localhost" if address is None else address.is_loopback


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(name)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found


def _plain(host: str) -> str:
    """One spelling of a name or address: small letters, without brackets and the root's dot."""
    name = host.strip("[]").lower().removesuffix(".")
    try:
        return str(ip_address(name))
    except ValueError:
        return name


def _checked(given: str) -> str:
    if given == ANY_NAME:
        return given
    name = _plain(given)
    if _address(name) is None:
        try:
            name = name.encode("idna").decode("ascii")
        except UnicodeError:
            name = ""
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"--allow-host {given}: expected a name without http:// and port, like "
                f"models.example.org, or {ANY_NAME} for any"
            )
    return name
