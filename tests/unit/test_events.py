"""Who hears of which event."""

from holdfast.domain.events import Event, Events, Reaping, RunnerStarted


def test_a_subscriber_hears_what_it_wants() -> None:
    everything: list[Event] = []
    starts: list[Event] = []
    others: list[Event] = []
    events = Events(everything.append)
    events.subscribe(starts.append, only=(RunnerStarted,))
    events.subscribe(others.append, never=(RunnerStarted,))
    started, reaped = RunnerStarted(1, "sync", 1), Reaping(2)
    events.emit(started)
    events.emit(reaped)
    assert (everything, starts, others) == ([started, reaped], [started], [reaped])


def test_what_nobody_wants_need_not_be_made() -> None:
    events = Events()
    assert not events.wants(Reaping)
    events.subscribe(lambda _event: None, only=(RunnerStarted,))
    assert not events.wants(Reaping)
    events.subscribe(lambda _event: None)  # also where it was asked for before
    assert events.wants(Reaping)
