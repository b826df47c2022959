"""One delivery to a real receiver: what arrives, and what becomes of the delivery by the answer."""

import re
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any

import pytest

from holdfast.domain.errors import ConfigurationError
from holdfast.domain.webhook import parse_url
from holdfast.tasks.flow import Permanent, Snooze
from holdfast.webhooks import verify
from holdfast.webhooks.delivering import MOST_WAITS, DeliveryFailed, DeliveryRefused, Sender, wait_seconds
from holdfast.webhooks.permission import Permission
from holdfast.webhooks.sending import Answer, Unreachable, post
from holdfast.webhooks.signing import secrets_of
from tests.webhooks.conftest import SECRET
from tests.webhooks.receiver import CERTIFICATE, Receiver

LOOPBACK = Permission.from_text("127.0.0.0/8")
JOB = {"id": "j", "state": "succeeded", "finished_at": "2026-01-02T03:04:05.000000Z", "result": {"name": "Zoë"}}


def sender(permission: Permission = LOOPBACK, **more: Any) -> Sender:
    return Sender(secrets_of(SECRET), permission, **more)


def deliver(url: str, job: dict[str, Any] = JOB, attempt: int = 1, by: Sender | None = None) -> int:
    return (by or sender()).deliver(url, f"job.{job['state']}", job, "delivery-1", attempt)


def test_what_arrives_is_signed_and_says_what_happened(receiver: Receiver) -> None:
    assert deliver(receiver.url) == 200
    [got] = receiver.arrived
    assert got.path == "/hooks?of=jobs"
    assert got.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert got.headers["content-type"] == "application/json"
    assert got.headers["webhook-id"] == "delivery-1"
    message = verify(got.headers, got.body, SECRET)
    assert message == {"type": "job.succeeded", "timestamp": JOB["finished_at"], "data": JOB}


def test_an_error_is_told_without_its_stack_and_a_long_result_not_at_all(receiver: Receiver) -> None:
    error = {"code": "ValueError", "message": "no", "stack": "secret.py, line 1", "retryable": False}
    deliver(receiver.url, {"state": "failed", "error": error})
    deliver(receiver.url, {"state": "succeeded", "result": None, "result_omitted": True})
    failed, succeeded = (got.message["data"] for got in receiver.arrived)
    assert failed["error"] == {"code": "ValueError", "message": "no"}
    assert "result" not in succeeded
    assert succeeded["result_omitted"] is True


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_a_receiver_that_takes_it_ends_it(receiver: Receiver, status: int) -> None:
    receiver.answers.append((status, {}))
    assert deliver(receiver.url) == status


@pytest.mark.parametrize("status", [400, 410, 413, 415, 422, 451])
def test_receiver_that_rejects_the_message_ends_the_delivery(receiver: Receiver, status: int) -> None:
    receiver.answers.append((status, {"Retry-After": "1"}))
    with pytest.raises(Permanent, match=f"answered {status}"):
        deliver(receiver.url)


@pytest.mark.parametrize("status", [401, 403, 404, 405, 409, 408, 425, 429, 500, 502, 503, 504, 301, 302, 307, 308])
def test_delivery_is_retried_after_any_other_status(receiver: Receiver, status: int) -> None:
    receiver.answers.append((status, {"Location": receiver.url}))
    with pytest.raises(DeliveryFailed, match=f"answered {status}"):
        deliver(receiver.url)
    assert len(receiver.arrived) == 1, "a redirect is not followed"


def test_a_receiver_may_say_when_to_come_back(receiver: Receiver) -> None:
    for status, header, seconds in ((429, "7", 7.0), (503, "7000000", 3600.0), (429, "0", 1.0)):
        receiver.answers.append((status, {"Retry-After": header}))
        with pytest.raises(Snooze) as snoozed:
            deliver(receiver.url)
        assert snoozed.value.delay_seconds == seconds
    receiver.answers.append((429, {"Retry-After": "7"}))
    with pytest.raises(DeliveryFailed):  # but not for ever
        deliver(receiver.url, attempt=MOST_WAITS + 1)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 120 ", 120.0),
        ("Fri, 02 Jan 2026 03:05:05 GMT", 60.0),
        ("Fri, 02 Jan 2026 03:05:05 -0000", 60.0),
        ("Fri, 02 Jan 2025 03:05:05 GMT", 1.0),
        ("9" * 400, 3600.0),
        ("-1", None),
        ("soon", None),
        ("\u0661", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header: str | None, seconds: float | None) -> None:
    assert wait_seconds(header, datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == seconds


def test_what_is_not_public_is_refused_before_anything_is_sent(receiver: Receiver) -> None:
    for url in (receiver.url, f"http://localhost:{receiver.port}/", f"http://[::ffff:127.0.0.1]:{receiver.port}/"):
        with pytest.raises(Permanent, match="not on the public Internet") as refused:
            deliver(url, by=sender(Permission()))
        assert isinstance(refused.value.error, DeliveryRefused)
    with pytest.raises(Permanent, match="must begin with"):
        deliver("ftp://127.0.0.1/")
    assert receiver.arrived == []


def test_a_name_is_looked_up_once_and_that_address_is_reached(receiver: Receiver) -> None:
    """A name server that answers otherwise a moment later, as in DNS rebinding, is not asked again."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]
    asked: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return answers[len(asked) - 1]

    with Receiver("127.0.0.2", receiver.port) as other:
        only_first = sender(Permission.from_text("127.0.0.1"), resolve=resolve)
        assert deliver(f"http://rebound.example:{receiver.port}/", by=only_first) == 200
        assert (asked, [got.address for got in receiver.arrived]) == (["rebound.example"], ["127.0.0.1"])
        assert receiver.arrived[0].headers["host"] == f"rebound.example:{receiver.port}"
        with pytest.raises(Permanent, match="not on the public Internet"):
            deliver(f"http://rebound.example:{receiver.port}/", by=only_first)
        assert other.arrived == []


def test_proxies_of_the_environment_are_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert deliver(receiver.url) == 200
        assert (len(receiver.arrived), proxy.arrived) == (1, [])


def test_of_several_addresses_the_next_is_tried_when_one_is_silent(receiver: Receiver) -> None:
    found = sender(resolve=lambda _host, _port: ["127.0.0.3", "127.0.0.1"])
    assert deliver(f"http://x.example:{receiver.port}/", by=found) == 200


def test_tls_is_checked_for_the_name_in_the_url() -> None:
    trusting = ssl.create_default_context(cafile=str(CERTIFICATE))
    here = [ip_address("127.0.0.1")]
    with Receiver(secure=True) as receiver:
        good = parse_url(f"https://receiver.test:{receiver.port}/")
        assert post(good, here, {}, b"{}", tls=trusting).status == 200
        for host, context in (("other.test", trusting), ("127.0.0.1", trusting), ("receiver.test", None)):
            with pytest.raises(Unreachable, match="certificate verify failed"):
                post(parse_url(f"https://{host}:{receiver.port}/"), here, {}, b"{}", tls=context)
        assert len(receiver.arrived) == 1


@contextmanager
def speaking(*words: bytes, for_ever: bytes = b"") -> Iterator[int]:
    """A server that says these words to whoever comes, and then nothing, or the same again and again; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        open_ones: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                open_ones.append(connection)
                with suppress(OSError):  # the other one has left
                    for word in words:
                        connection.sendall(word)
                    while for_ever:
                        connection.sendall(for_ever)
                        time.sleep(0.01)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
        for connection in open_ones:
            connection.close()


def test_a_receiver_that_does_not_come_to_an_end_is_left() -> None:
    here = [ip_address("127.0.0.1")]
    for words in ((), (b"HTTP/1.1 200",), (b"HTTP/1.1 100 Continue\r\n\r\n",) * 3, (b"HTTP/1.1 200 OK\r\nX: ",)):
        with speaking(*words) as port, pytest.raises(Unreachable, match="did not answer within"):
            post(parse_url(f"http://127.0.0.1:{port}/"), here, {}, b"{}", total_seconds=0.2)
    with (
        speaking(b"HTTP/1.1 200 OK\r\nX: ", for_ever=b"x") as port,
        pytest.raises(Unreachable, match="did not answer within"),
    ):
        post(parse_url(f"http://127.0.0.1:{port}/"), here, {}, b"{}", total_seconds=0.3)


def test_an_answer_counts_even_if_its_body_never_ends() -> None:
    with speaking(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x" * 10) as port:
        assert answered(port).status == 200


def answered(port: int) -> Answer:
    """The head has to arrive within the time that the body uses up: on a slow machine it is given more."""
    for seconds in (0.2, 2.0, 20.0, 200.0):
        with suppress(Unreachable):
            return post(
                parse_url(f"http://127.0.0.1:{port}/"), [ip_address("127.0.0.1")], {}, b"{}", total_seconds=seconds
            )
    pytest.fail("an answer whose body never ends does not count")


def test_who_speaks_no_http_or_is_not_there_has_not_got_it() -> None:
    with speaking(b"220 mail.example ESMTP\r\n") as port, pytest.raises(DeliveryFailed, match="BadStatusLine"):
        deliver(f"http://127.0.0.1:{port}/")
    with pytest.raises(DeliveryFailed, match="Connection refused"):
        deliver(f"http://127.0.0.1:{port}/")


def test_nothing_is_sent_unsigned() -> None:
    with pytest.raises(ConfigurationError, match=re.escape("set HOLDFAST_WEBHOOK_SECRET")):
        Sender.from_environment({})
    assert SECRET not in repr(Sender.from_environment({"HOLDFAST_WEBHOOK_SECRET": SECRET}))
