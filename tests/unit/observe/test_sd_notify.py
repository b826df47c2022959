"""What systemd hears of a worker, on a real socket."""

import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.worker import sd_notify
from tests.servers.waiting import DEADLINE_SECONDS


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    name = str(tmp_path / "notify") if request.param == "path" else f"@holdfast-{uuid.uuid4()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(DEADLINE_SECONDS)
        receiver.bind(name.replace("@", "\0", 1))
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield receiver


def test_the_messages_are_those_of_the_protocol(systemd: socket.socket) -> None:
    assert sd_notify.ready("8 runners")
    assert sd_notify.status("idle")
    assert sd_notify.watchdog()
    assert sd_notify.stopping()
    assert [systemd.recv(4096) for _ in range(4)] == [
        b"READY=1\nSTATUS=8 runners",
        b"STATUS=idle",
        b"WATCHDOG=1",
        b"STOPPING=1\nSTATUS=draining",
    ]


def test_a_status_cannot_smuggle_in_another_field(systemd: socket.socket) -> None:
    sd_notify.status("away:\nMAINPID=1\r\n\udcff")
    assert systemd.recv(4096) == b"STATUS=away: MAINPID=1 ?"


@pytest.mark.parametrize("address", [None, "", "vsock:2:1234", "relative/path", "/nowhere/at/all"])
def test_without_systemd_nothing_happens(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    if address is not None:
        monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not sd_notify.ready("up")


@pytest.mark.parametrize(
    ("microseconds", "pid", "interval"),
    [
        ("60000000", "mine", 30.0),
        ("60000000", None, 30.0),
        ("60000000", "1", None),
        ("0", None, None),
        ("soon", None, None),
        (None, None, None),
    ],
)
def test_the_watchdog_wants_to_hear_twice_as_often_as_it_waits(
    monkeypatch: pytest.MonkeyPatch, microseconds: str | None, pid: str | None, interval: float | None
) -> None:
    for name, value in (("WATCHDOG_USEC", microseconds), ("WATCHDOG_PID", pid)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, str(os.getpid()) if value == "mine" else value)
    assert sd_notify.watchdog_interval() == interval
