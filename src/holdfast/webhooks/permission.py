"""Where messages may be sent: to the public Internet, and to what the operator allows besides.

The name is looked up once, every address is judged, and the connection is made to an address that was judged: a name
server that answers otherwise the next time changes nothing.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.domain.webhook import Target, parse_url
from holdfast.webhooks.addresses import Address, Network, is_public, plain

ALLOW_VARIABLE = "HOLDFAST_WEBHOOK_ALLOW"
LOOKUP_SECONDS = 5.0
USUAL_PORTS = (80, 443)
FIRST_FREE_PORT = 1024  # below it live mail, shells and name servers, which read an HTTP request in their own ways

Resolve = Callable[[str, int], list[str]]


class Refused(Exception):
    """This host may not be reached; trying again would not help."""


class Unresolved(Exception):
    """The name has no address at the moment."""


@dataclass(frozen=True, slots=True)
class Permission:
    """`hosts` may be anywhere and have any port; so may what is in `networks`."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    @classmethod
    def from_text(cls, text: str) -> Permission:
        """A comma-separated list of host names, addresses and networks, as in `receiver.internal, 10.1.0.0/16`."""
        hosts: set[str] = set()
        networks: list[Network] = []
        for entry in filter(None, (part.strip() for part in text.split(","))):
            try:
                networks.append(ipaddress.ip_network(entry))
            except ValueError:
                hosts.add(_host(entry))
        return cls(frozenset(hosts), tuple(networks))

    def allows(self, address: Address) -> bool:
        return any(address.version == network.version and address in network for network in self.networks)

    def addresses(self, target: Target, resolve: Resolve) -> list[Address]:
        """Those of the target's addresses that may be reached; Refused if there are only others."""
        found = _found(target, resolve)
        if target.host in self.hosts:
            return found
        usual_port = target.port in USUAL_PORTS or target.port >= FIRST_FREE_PORT
        good = [address for address in found if self.allows(address) or (usual_port and is_public(address))]
        if good:
            return good
        if not usual_port and any(is_public(address) for address in found):
            raise Refused(
                f"port {target.port} is refused: webhooks go to ports 80, 443 and {FIRST_FREE_PORT} and up, unless"
                f" {ALLOW_VARIABLE} names the host"
            )
        raise Refused(
            f"{target.host} is not on the public Internet ({', '.join(map(str, found[:4]))}); if it may be reached all"
            f" the same, name the host or its network in {ALLOW_VARIABLE} where the worker runs"
        )


def _host(entry: str) -> str:
    with suppress(InvalidInput):
        host = parse_url(f"http://{entry}/").host
        if host == entry.lower():
            return host
    raise ConfigurationError(
        f"{ALLOW_VARIABLE}: {entry!r} is neither a host name nor an address nor a network such as 10.1.0.0/16"
    )


def _found(target: Target, resolve: Resolve) -> list[Address]:
    literal = target.address
    if literal is not None:
        return [plain(literal)]
    # A link-local address comes with the interface that it is on.
    texts = [text.partition("%")[0] for text in resolve(target.host, target.port)]
    if not texts:
        raise Unresolved(f"{target.host} has no address")
    return list(dict.fromkeys(plain(ipaddress.ip_address(text)) for text in texts))


def look_up(host: str, port: int) -> list[str]:
    """As the system does it, which knows no time limit of its own: so it is asked by a thread that can be left."""
    answer: list[Any] = []

    def ask() -> None:
        try:
            answer.append(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answer.append(error)

    thread = threading.Thread(target=ask, name="holdfast-lookup", daemon=True)
    thread.start()
    thread.join(LOOKUP_SECONDS)
    if not answer:
        raise Unresolved(f"looking up {host} took more than {LOOKUP_SECONDS:g} s")
    if isinstance(answer[0], Exception):
        raise Unresolved(f"looking up {host} failed: {answer[0]}")
    return [str(entry[4][0]) for entry in answer[0]]
