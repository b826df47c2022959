"""A webhook as a job names it: where to post, and for which ends of the job.

The form of the URL is judged here, once and strictly: no name is looked up, and nothing is read into it. Other programs
read odd spellings of hosts in ways of their own (`127.1`, `0x7f000001`, `2130706433` and `127.0.0.1.` are all the same
machine to somebody), so there is one spelling, and what is not spelt so is refused. Whether the host may be reached is
decided when a message is delivered.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.lifecycle import TERMINAL, State

# A delivery is a job of its own, inserted by a trigger in the transaction that ends the job it tells of.
DELIVERY_TASK = "holdfast.webhook"
DELIVERY_QUEUE = "webhooks"
DELIVERY_ATTEMPTS = 12  # with the usual waits between them, a receiver may be away for more than five hours
DELIVERY_TIMEOUT_SECONDS = 60
LONGEST_RESULT_BYTES = 64 * 1024  # a longer result is not sent along

EVENTS = tuple(str(state) for state in TERMINAL)
DEFAULT_EVENTS = (str(State.SUCCEEDED), str(State.FAILED))
MAX_URL = 2_000

_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[0-9a-f:.]+\]|[0-9a-z._-]+)(?P<port>:[0-9]+)?(?P<path>[/?][!-~]*)?", re.IGNORECASE
)
_NEVER_IN_A_URL = re.compile(r'[\\"<>#]')
_LABEL = re.compile(r"[0-9a-z_](?:[0-9a-z_-]{0,61}[0-9a-z_])?")
_LIKE_A_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """A URL in its parts; `host` is a name in lower case, or an address without brackets."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def is_secure(self) -> bool:
        return self.scheme == "https"

    @property
    def address(self) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
        """Of a host that is not a name."""
        try:
            return ipaddress.ip_address(self.host)
        except ValueError:
            return None


def check_webhook(value: Any, field: str = "webhook") -> dict[str, Any]:
    """A URL, or `{"url": …, "on": […]}`, in the form in which it is stored."""
    given = {"url": value} if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise InvalidInput(field, f"must be a URL or an object with url and on, got {type(value).__name__}")
    for name in given:
        if name not in ("url", "on"):
            raise InvalidInput(f"{field}.{name}", "unknown option of a webhook; known are on, url")
    if "url" not in given:
        raise InvalidInput(f"{field}.url", "is required")
    parse_url(given["url"], field if isinstance(value, str) else f"{field}.url")
    return {"url": given["url"], "on": _events(given.get("on", DEFAULT_EVENTS), f"{field}.on")}


def _events(value: Any, field: str) -> list[str]:
    wanted = [value] if isinstance(value, str) else value
    if not isinstance(wanted, list | tuple) or not wanted:
        raise InvalidInput(field, f"must be a list of some of {', '.join(EVENTS)}, got {value!r}")
    for item in wanted:
        if item not in EVENTS:
            raise InvalidInput(field, f"must be some of {', '.join(EVENTS)}, got {item!r}")
    return [event for event in EVENTS if event in wanted]


def parse_url(url: Any, field: str = "url") -> Target:
    """What is wrong with it is named; the URL itself is not repeated, because it may hold what is secret."""
    if not isinstance(url, str):
        raise InvalidInput(field, f"must be a URL, got {type(url).__name__}")
    if len(url) > MAX_URL:
        raise InvalidInput(field, f"must be at most {MAX_URL:,} characters, got {len(url):,}")
    if not re.fullmatch(r"[!-~]*", url) or _NEVER_IN_A_URL.search(url):
        raise InvalidInput(
            field,
            "must be plain ASCII without spaces, control characters, backslashes, quotes, <, > or a #fragment; write"
            " other letters as %.. and in the host as xn--…",
        )
    found = _URL.fullmatch(url)
    if found is None:
        raise InvalidInput(field, _why_no_url(url))
    scheme = found["scheme"].lower()
    port = int(found["port"][1:]) if found["port"] else _PORTS[scheme]
    if not 1 <= port <= 65535:
        raise InvalidInput(field, f"must have a port between 1 and 65535, got {port}")
    path = found["path"] or "/"
    return Target(scheme, _host(found["host"].lower(), field), port, path if path.startswith("/") else f"/{path}")


def _why_no_url(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.lower() not in _PORTS:
        return "must begin with https:// or http://"
    if "@" in re.split(r"[/?]", rest, maxsplit=1)[0]:
        return "must not carry a user name or a password; receivers know us by the signature"
    return "must look like https://host/path or https://host:port/path"


def _host(host: str, field: str) -> str:
    if host.startswith("["):
        try:
            return str(ipaddress.IPv6Address(host[1:-1]))
        except ValueError:
            raise InvalidInput(field, "has no IPv6 address between the brackets") from None
    labels = host.split(".")
    if _LIKE_A_NUMBER.fullmatch(labels[-1]):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            rule = "must spell an IPv4 address as four decimal numbers without leading zeros, as in 192.0.2.1"
            raise InvalidInput(field, rule) from None
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidInput(field, "must have a host name of labels with a dot between them, none at the end")
    return host
