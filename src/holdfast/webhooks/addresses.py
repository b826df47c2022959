"""Which addresses belong to the public Internet.

Written out instead of asked of `ipaddress`, whose answers differ between patch releases of Python. What is not known to
be public is refused. An address that carries an IPv4 address inside it, for some gateway to unwrap, is as good as that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOT_PUBLIC_4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",
        "100.64.0.0/10",  # behind a carrier's NAT; the metadata of Alibaba's cloud is here, too
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's own services, on every machine there
        "169.254.0.0/16",  # link-local; metadata of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; metadata of Oracle's cloud
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments; Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",
        "3fff::/20",  # documentation
    )
)
_NAT64 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
_COMPATIBLE = ipaddress.IPv6Network("::/96")  # IPv4-compatible, long out of use
_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    inside = list(embedded(address))
    if inside and not all(is_public(found) for found in inside):
        return False
    if address in _MAPPED or address in _NAT64[0]:
        return True  # as public as what is inside it
    return address in _PUBLIC_6 and not any(address in network for network in _NOT_PUBLIC_6)


def embedded(address: ipaddress.IPv6Address) -> Iterator[ipaddress.IPv4Address]:
    """IPv4 addresses that some gateway may see in it."""
    bits = int(address)
    if any(address in network for network in (_MAPPED, _TRANSLATED, _COMPATIBLE, *_NAT64)):
        yield ipaddress.IPv4Address(bits & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        yield ipaddress.IPv4Address((bits >> 80) & 0xFFFFFFFF)
    if (bits >> 32) & 0xFFFFFFFF in _ISATAP:
        yield ipaddress.IPv4Address(bits & 0xFFFFFFFF)


def plain(address: Address) -> Address:
    """An IPv4 address that came in IPv6 clothes, as itself."""
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
