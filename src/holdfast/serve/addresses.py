"""Who can reach an address that a server listens on."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Only programs of this machine can."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"
