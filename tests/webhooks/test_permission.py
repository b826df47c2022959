"""Which hosts may be reached: the public Internet, and what is allowed besides."""

import ipaddress

import pytest

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.webhook import parse_url
from holdfast.webhooks.addresses import is_public
from holdfast.webhooks.permission import Permission, Refused, Unresolved, look_up

PRIVATE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.0.1",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.0.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::7f00:1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "2001::1",
    "2001:0:7f00:1::",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2002:a9fe:a9fe::",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fd12:3456::1",
    "fe80::1",
    "fe80::5efe:10.0.0.1",
    "2a00:1450::5efe:10.0.0.1",
    "2a00:1450::200:5efe:127.0.0.1",
    "fec0::1",
    "ff02::1",
    "4000::1",
    "::8.8.8.8",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.1",
    "168.63.129.15",
    "169.253.255.255",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:4860:4860::8888",
    "2606:4700::1111",
    "2a00:1450::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]


def literal(address: str) -> str:
    return f"[{address}]" if ":" in address else address


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused_written_down_or_looked_up(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))
    for url in (f"https://{literal(address)}/", "https://x.example/"):
        with pytest.raises(Refused, match="not on the public Internet"):
            Permission().addresses(parse_url(url), lambda _host, _port: [address])


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_not(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))
    for url in (f"https://{literal(address)}/", "https://x.example:8443/"):
        [found] = Permission().addresses(parse_url(url), lambda _host, _port: [address])
        assert is_public(found)


def test_an_address_in_ipv6_clothes_is_reached_as_what_it_is() -> None:
    [found] = Permission().addresses(parse_url("https://[::ffff:8.8.8.8]/"), look_up)
    assert str(found) == "8.8.8.8"


def test_of_several_addresses_only_the_public_ones_are_used() -> None:
    answers = ["10.0.0.1", "8.8.8.8", "fe80::1%eth0", "8.8.8.8", "2a00:1450::1"]
    found = Permission().addresses(parse_url("https://x.example/"), lambda _host, _port: answers)
    assert [str(address) for address in found] == ["8.8.8.8", "2a00:1450::1"]


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST"])
def test_a_name_of_this_machine_is_looked_up_and_refused(name: str) -> None:
    with pytest.raises(Refused, match="HOLDFAST_WEBHOOK_ALLOW"):
        Permission().addresses(parse_url(f"http://{name}/"), look_up)


def test_a_name_without_an_address_may_have_one_later() -> None:
    with pytest.raises(Unresolved):
        Permission().addresses(parse_url("https://x.example/"), lambda _host, _port: [])
    with pytest.raises(Unresolved, match="looking up"):
        look_up("a" * 64, 443)  # refused by the system itself: nobody on the network is asked


@pytest.mark.parametrize("port", [21, 22, 25, 53, 110, 445, 1023])
def test_ports_of_other_protocols_are_refused(port: int) -> None:
    url = parse_url(f"http://x.example:{port}/")
    with pytest.raises(Refused, match=f"port {port}"):
        Permission().addresses(url, lambda _host, _port: ["8.8.8.8"])
    for allowed in ("x.example", "8.8.8.0/24"):
        assert Permission.from_text(allowed).addresses(url, lambda _host, _port: ["8.8.8.8"])


@pytest.mark.parametrize(
    ("allow", "address", "good"),
    [
        ("10.1.0.0/16", "10.1.2.3", True),
        ("10.1.0.0/16", "::ffff:10.1.2.3", True),
        ("10.1.0.0/16", "10.2.0.1", False),
        (" receiver.internal , 192.168.0.1", "192.168.0.1", True),
        ("192.168.0.1", "192.168.0.2", False),
        ("fd00::/8", "fd12::1", True),
        ("X.Example", "127.0.0.1", True),
        ("y.x.example", "127.0.0.1", False),
        ("example", "127.0.0.1", False),
        ("", "127.0.0.1", False),
    ],
)
def test_what_is_allowed_besides(allow: str, address: str, good: bool) -> None:
    permission, target = Permission.from_text(allow), parse_url("http://x.example/")
    if good:
        assert permission.addresses(target, lambda _host, _port: [address])
        return
    with pytest.raises(Refused):
        permission.addresses(target, lambda _host, _port: [address])


@pytest.mark.parametrize("entry", ["10.1.0.5/16", "x.example:80", "http://x.example", "*", "*.example", "127.1", "a b"])
def test_an_entry_that_means_nothing_is_named(entry: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_WEBHOOK_ALLOW"):
        Permission.from_text(f"10.0.0.0/8,{entry}")
