"""A signal goes to the process that was seen, and not to another one that got its pid since."""

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast.runners import descendants
from holdfast.runners.process_table import process


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "300"]) as sleeper:
        yield sleeper
        sleeper.kill()


def test_a_process_that_started_at_another_moment_is_not_signalled(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda _descriptor, number: sent.append(number))
    seen = process(sleeper.pid)
    assert seen is not None
    descendants._send(replace(seen, started=seen.started - 1), signal.SIGKILL)
    assert sent == [], "it is somebody else by now"
    descendants._send(seen, signal.SIGKILL)
    assert sent == [signal.SIGKILL]
