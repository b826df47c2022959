"""What one attempt saves while it runs: how many names it may take, and signal handlers that save."""

import hashlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from holdfast.domain.artifacts import Artifact
from holdfast.domain.errors import InvalidInput
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.outcome import Succeeded
from holdfast.ports import ArtifactStore
from holdfast.runners.child.channel import FLUSH_LINES, JobChannel, Outbox
from holdfast.runners.child.link import Link
from holdfast.runners.frames import Decoder, Frame
from holdfast.tasks import saving
from holdfast.tasks.placing import place
from holdfast.tasks.saving import Saves
from tests.servers.waiting import DEADLINE_SECONDS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = "01890a5d-ac96-774b-bcce-b302099a8057"


class Files:
    """Only what is asked of a store here."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.during_write: Callable[[], None] = lambda: None

    def write(self, reference: str, data: bytes) -> None:
        self.during_write()
        self.content[reference] = data

    def __call__(self) -> ArtifactStore:
        return cast(ArtifactStore, self)


@contextmanager
def on_signal(handle: Callable[[], object]) -> Iterator[None]:
    """What would wait for ever fails after the deadline instead."""

    def give_up(_number: int, _frame: object) -> None:
        raise AssertionError("it waits for itself")

    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: handle())
    before_alarm = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(int(DEADLINE_SECONDS))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGUSR1, before)
        signal.signal(signal.SIGALRM, before_alarm)


class Told:
    """What a supervisor would know, and what was on the disk each time it was told."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.known: dict[str, Artifact] = {}
        self.count = 0
        self.interrupt_at = 0

    def __call__(self, name: str, artifact: Artifact | None) -> None:
        self.count += 1
        if self.count == self.interrupt_at:
            signal.raise_signal(signal.SIGUSR1)
        if artifact is None:
            self.known.pop(name)
        else:
            self.known[name] = artifact
        self.check()

    def check(self) -> None:
        for artifact in self.known.values():
            assert hashlib.sha256(self.files.content[artifact.reference]).hexdigest() == artifact.sha256


@pytest.mark.parametrize("name", ["checkpoint", "page"])
@pytest.mark.parametrize("interrupt_at", [1, 2, 3])
def test_a_handler_saves_wherever_it_interrupts_the_telling(name: str, interrupt_at: int) -> None:
    files = Files()
    told = Told(files)
    told.interrupt_at = interrupt_at
    saves = Saves(JOB, 1, files, told)
    with on_signal(lambda: saves.save(name, b"by the handler")):
        saves.save("page", b"one")
        saves.save("page", b"two")
    assert told.count >= interrupt_at
    told.check()
    # Under the same name the last one counts: what came during the first save is before the second.
    expected = {"page": b"two"} | ({name: b"by the handler"} if name == "checkpoint" or interrupt_at > 1 else {})
    assert {item.name: files.content[item.reference] for item in saves.artifacts} == expected
    assert told.known == {item.name: item for item in saves.artifacts}


@pytest.mark.parametrize("name", ["checkpoint", "page"])
def test_a_handler_saves_also_under_the_name_whose_file_is_being_written(name: str) -> None:
    files = Files()
    told = Told(files)
    saves = Saves(JOB, 1, files, told)

    def once() -> None:
        files.during_write = lambda: None
        signal.raise_signal(signal.SIGUSR1)

    files.during_write = once
    with on_signal(lambda: saves.save(name, b"by the handler")):
        saves.save("page", b"one")
    assert files.content[f"{JOB}/1/{name}"] == b"by the handler"
    told.check()
    assert set(told.known) == {"page", name}


def test_what_goes_wrong_with_it_is_raised_where_it_interrupted() -> None:
    files = Files()
    told = Told(files)
    told.interrupt_at = 1
    saves = Saves(JOB, 1, files, told)
    with on_signal(lambda: saves.save("page/1", b"")), pytest.raises(InvalidInput, match="other's folder"):
        saves.save("page", b"")
    assert set(told.known) == {"page"}


def test_a_handler_that_interrupts_a_frame_half_way_saves_when_that_is_sent() -> None:
    """The runner's real link, its buffer full, and a supervisor that reads only when the handler is through."""
    ours, theirs = socket.socketpair()
    files = Files()
    link = Link(ours.detach())
    channel = JobChannel(f"{JOB}/1", Outbox(link))
    saves = Saves(JOB, 1, files, channel.saved, channel.later)
    saves.save("checkpoint", b"one")
    heard: list[Frame] = []
    handled, decoder = threading.Event(), Decoder()

    main = threading.get_ident()

    def listen() -> None:
        while not any(_says(frame, b"two") for frame in heard):
            heard.extend(decoder.feed(theirs.recv(1 << 16)))
            if len(heard) == 1 and decoder._rest and not handled.is_set():  # half of the log is here
                signal.pthread_kill(main, signal.SIGUSR1)
                handled.wait(DEADLINE_SECONDS)

    def handle() -> None:
        assert link.is_sending_here
        saves.save("checkpoint", b"two")
        assert files.content[f"{JOB}/1/checkpoint"] == b"one", "the record of it still stands"
        handled.set()

    reader = threading.Thread(target=listen, daemon=True)
    line = LogLine(JOB, 1, 0, NOW, Stream.STDOUT, "x" * 100_000)
    with on_signal(handle):
        reader.start()
        for _ in range(FLUSH_LINES):
            channel.log(line)
    reader.join(DEADLINE_SECONDS)
    assert files.content[f"{JOB}/1/checkpoint"] == b"two"
    assert [frame["t"] for frame in heard] == ["saved", "log", "saving", "saved"]
    assert not decoder.is_broken
    theirs.close()
    link._close()


def _says(frame: Frame, data: bytes) -> bool:
    return frame["t"] == "saved" and bool(frame["artifact"]["sha256"] == hashlib.sha256(data).hexdigest())


def test_only_new_names_count_and_a_result_always_finds_a_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "MOST_ARTIFACTS", 3)
    files = Files()
    saves = Saves(JOB, 1, files)
    for name in ("a", "b", "c"):
        saves.save(name, b"")
    for name in ("d", "D", "d/e"):
        with pytest.raises(InvalidInput, match="pack several into one"):
            saves.save(name, b"")
    saves.save("a", b"again")
    assert files.content[f"{JOB}/1/a"] == b"again"
    result: Any = "x" * 300_000
    assert place(Succeeded(result), saves) == Succeeded(None, f"{JOB}/1/result.json")


def test_a_refused_name_is_not_remembered() -> None:
    saves = Saves(JOB, 1, Files())
    saves.save("a", b"")
    with pytest.raises(InvalidInput, match="other's folder"):
        saves.save("a/b/c", b"")
    saves.save("B", b"")
    assert [artifact.name for artifact in saves.artifacts] == ["a", "B"]
