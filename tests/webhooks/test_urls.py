"""The form of a URL: one spelling for each host, and whatever is spelt otherwise is refused."""

import pytest

from holdfast.domain.errors import InvalidInput
from holdfast.domain.webhook import Target, check_webhook, parse_url


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://x.example", Target("https", "x.example", 443, "/")),
        ("HTTPS://X.Example/A?b=C", Target("https", "x.example", 443, "/A?b=C")),
        ("http://x.example:8080?b=%20c", Target("http", "x.example", 8080, "/?b=%20c")),
        ("http://receiver/a@b", Target("http", "receiver", 80, "/a@b")),
        ("http://my_host-1.internal/", Target("http", "my_host-1.internal", 80, "/")),
        ("https://xn--bcher-kva.example/", Target("https", "xn--bcher-kva.example", 443, "/")),
        ("http://192.0.2.1/", Target("http", "192.0.2.1", 80, "/")),
        ("http://[2001:DB8::0:1]:81/", Target("http", "2001:db8::1", 81, "/")),
        ("http://[::ffff:127.0.0.1]/", Target("http", "::ffff:7f00:1", 80, "/")),
        ("http://1.x.example/", Target("http", "1.x.example", 80, "/")),
    ],
)
def test_what_is_taken(url: str, target: Target) -> None:
    assert parse_url(url) == target


ODD_SPELLINGS = [
    "2130706433",
    "017700000001",
    "0x7f000001",
    "0X7F.1",
    "0x",
    "127.1",
    "127.0.1",
    "127.0.0.1.",
    "127.0.0.01",
    "0177.0.0.1",
    "0x7f.0.0.1",
    "127.0.0.0x1",
    "256.0.0.1",
    "1.2.3.4.5",
    "x.example.1",
    "x.example.0x1f",
    "x.example.",
    "x..example",
    ".x.example",
    "-x.example",
    "x-.example",
    "a" * 64 + ".example",
    ".".join(["a" * 60] * 5),
    "\uff11\uff12\uff17.0.0.1",
    "\u0661\u0662\u0667.0.0.1",
    "127\u30020\u30020\u30021",
    "\u24db\u24de\u24d2al",
    "%6c%6f%63al",
    "127.0.0.1%00.x.example",
    "[::1",
    "::1",
    "[::1%25eth0]",
    "[1.2.3.4]",
    "[::1]x",
    "[]",
    "",
]
ODD_URLS = [
    "x.example",
    "//x.example/",
    "ftp://x.example/",
    "file:///etc/passwd",
    "javascript:alert(1)",
    "gopher://x.example/",
    "https:/x.example/",
    "https:x.example",
    "https:///path",
    "https://user@x.example/",
    "https://user:secret@x.example/",
    "https://x.example:80@127.0.0.1/",
    "https://127.0.0.1\\@x.example/",
    "https://x.example\\.internal/",
    "https://x.example#@127.0.0.1/",
    "https://x.example/#fragment",
    "https://x.example/a b",
    "https://x.example/\n",
    "https://x.example/\r\nHost: y",
    "\thttps://x.example/",
    " https://x.example/",
    "ht\ntps://x.example/",
    "https://x.example/\x00",
    "https://x.example/\x7f",
    "https://x.example/ä",
    "https://x.example:0/",
    "https://x.example:65536/",
    "https://x.example:99999999999999999999/",
    "https://x.example:-1/",
    "https://x.example:+80/",
    "https://x.example:8_0/",
    "https://x.example:\u0661/",
    "https://x.example:/",
    "https://x.example/" + "a" * 2_000,
]


@pytest.mark.parametrize("host", ODD_SPELLINGS)
def test_a_host_has_one_spelling(host: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_url(f"http://{host}/")
    assert refused.value.field == "url"


@pytest.mark.parametrize("url", ODD_URLS)
def test_what_is_no_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_webhook({"url": url})
    assert refused.value.field == "webhook.url"
    assert "secret" not in str(refused.value)


def test_a_webhook_is_stored_in_one_form() -> None:
    both = {"url": "https://x.example", "on": ["succeeded", "failed"]}
    assert check_webhook("https://x.example") == both
    assert check_webhook({"url": "https://x.example"}) == both
    assert check_webhook({"url": "https://x.example", "on": ("failed", "succeeded", "failed")}) == both
    assert check_webhook({"url": "https://x.example", "on": "cancelled"})["on"] == ["cancelled"]
