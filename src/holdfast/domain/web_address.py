"""Web addresses in one form: two texts that lead to the same page, but for query and fragment, become the same.

Read by a grammar of our own, so that no version of Python changes anybody's keys. What does not fit it has no normal
form. A normal form is its own normal form, so that nothing else can be mistaken for it.
"""

from __future__ import annotations

import re
import unicodedata
from ipaddress import IPv6Address

_ADDRESS = re.compile(r"(https?)://([^/?#]*)([^?#]*)(?:[?#].*)?", re.IGNORECASE | re.DOTALL | re.ASCII)
_DEFAULT_PORTS = {"http": 80, "https": 443}
_HIGHEST_PORT = 65_535
_LONGEST_LABEL = 63
_LONGEST_HOST = 253
_PLAIN_HOST = re.compile(r"[a-z0-9._-]+")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_ESCAPE_OR_FORBIDDEN = re.compile(rb"%([0-9A-Fa-f]{2})|[^A-Za-z0-9._~/!$&'()*+,;=:@-]")


def normal_address(text: str) -> str | None:
    """None for what is not an http or https address of a host."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return None
    scheme = found[1].lower()
    if "\\" in found[2] or not found[2].isprintable():  # to a browser this host is another one
        return None
    # Who asks is no part of what is asked for; what stands before the last @ is not the host, whatever it looks like.
    host, port = _split_port(found[2].rpartition("@")[2])
    name, number = _normal_host(host), _port_number(port, scheme)
    if name is None or number is None:
        return None
    shown = "" if number == _DEFAULT_PORTS[scheme] else f":{number}"
    return f"{scheme}://{name}{shown}{_normal_path(found[3])}"


def _split_port(place: str) -> tuple[str, str]:
    """The colons of an IPv6 address stand in brackets."""
    if place.endswith("]"):
        return place, ""
    host, colon, port = place.rpartition(":")
    return (host, port) if colon else (place, "")


def _port_number(text: str, scheme: str) -> int | None:
    if not text:
        return _DEFAULT_PORTS[scheme]
    if not re.fullmatch("[0-9]{1,5}", text, re.ASCII) or not 0 < int(text) <= _HIGHEST_PORT:
        return None
    return int(text)


def _normal_host(text: str) -> str | None:
    if text.startswith("[") and text.endswith("]"):
        return _normal_ipv6(text[1:-1])
    if len(text) > _LONGEST_HOST:
        return None
    lower = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).lower())
    labels = [_normal_label(label) for label in lower.split(".")]
    host = ".".join(label or "" for label in labels)
    return host if None not in labels and len(host) <= _LONGEST_HOST and host.strip(".") else None


def _normal_label(label: str) -> str | None:
    """Letters of other scripts as the name system has them (xn--…). Nothing is mapped: ß is not ss, and letters that
    only look alike stay different."""
    if not label or _PLAIN_HOST.fullmatch(label):
        return label
    if len(label) > _LONGEST_LABEL or not all(_is_of_a_name(character) for character in label):
        return None
    return "xn--" + label.encode("punycode").decode("ascii")


def _is_of_a_name(character: str) -> bool:
    if character.isascii():
        return bool(_PLAIN_HOST.fullmatch(character))
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _normal_ipv6(text: str) -> str | None:
    try:
        address = IPv6Address(text)
    except ValueError:
        return None
    # Written out: how Python shortens it has changed with its versions.
    return None if address.scope_id else f"[{address.packed.hex(':', 2)}]"


def _normal_path(path: str) -> str:
    """The same escapes for the same characters, no dot segments, no slash at the end."""
    escaped = _ESCAPE_OR_FORBIDDEN.sub(_escape, path.encode()).decode("ascii")
    return _without_dots(escaped).rstrip("/")


def _escape(found: re.Match[bytes]) -> bytes:
    """What need not be escaped is not; what may not stand in a path is, also a % that begins no escape."""
    value = int(found[1], 16) if found[1] else found[0][0]
    return bytes((value,)) if value in _UNRESERVED else b"%%%02X" % value


def _without_dots(path: str) -> str:
    """As RFC 3986 resolves them; above the root there is nothing."""
    kept: list[str] = []
    for segment in path.split("/")[1:]:
        if segment == "..":
            kept = kept[:-1]
        elif segment != ".":
            kept.append(segment)
    return "".join(f"/{segment}" for segment in kept)
