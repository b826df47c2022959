"""`holdfast top` over HTTP: the same view through a control plane, also one that goes away and comes back."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest

from holdfast.domain.answers import Beat
from holdfast.domain.feed import FeedPlace
from holdfast.domain.outcome import Report, Succeeded
from holdfast.serve.options import ServeSettings
from holdfast.serve.running import ControlPlane
from holdfast.wiring.http import open_control_plane
from tests.acceptance.command_line import CommandLine, InProcess
from tests.acceptance.terminal import terminal
from tests.serve.grounds import Served, serving

pytestmark = pytest.mark.parametrize("served_database", ["sqlite"], indirect=True, scope="module")


def test_one_document_has_what_the_control_plane_tells(served: Served, tmp_path: Path, queue: str) -> None:
    first, second = served.enqueue(queue, 2)
    done, runs = served.store.claim("ada", 2, [queue])
    served.store.settle([Report(done.job_id, done.attempt, done.lease_token, Succeeded(), "ada")])
    served.store.heartbeat([Beat(runs.job_id, runs.attempt, runs.lease_token, "ada", {"done": 1, "total": 2})])

    holdfast = InProcess(tmp_path, served.url)
    seen = holdfast("top", "--json", HOLDFAST_TOKEN=served.tokens["viewer"]).succeeded().document
    assert {first, second} == {done.job_id, runs.job_id}
    assert sum(seen["throughput"]["enqueued"]) >= 2
    assert sum(seen["throughput"]["done"]) >= 1
    assert {state["state"]: state["count"] for state in seen["states"]}["running"] >= 1
    [run] = [run for run in seen["running"] if run["queue"] == queue]
    assert (run["id"], run["worker"], run["progress"]) == (runs.job_id, "ada", {"done": 1, "total": 2})


def test_the_feed_goes_on_after_a_place_and_tells_nothing_twice(served: Served, queue: str) -> None:
    remote = open_control_plane(served.url, served.tokens["viewer"])
    begin = served.store.feed(None).now
    served.enqueue(queue, 3)
    try:
        first = remote.feed(FeedPlace(begin), 2)
        rest = remote.feed(first.items[-1].place, 2)
        told = [item for item in [*first.items, *rest.items] if item.queue == queue]
        assert (len(first.items), first.more, len(told), rest.more) == (2, True, 3, False)
        assert rest.now >= rest.items[-1].at
        assert told == [item for item in served.store.feed(FeedPlace(begin)).items if item.queue == queue]
        assert remote.feed(None).items == ()
    finally:
        remote.close()


def test_a_control_plane_that_goes_away_is_said_and_seen_again(
    served_database: str, tmp_path: Path, queue: str
) -> None:
    with serving(served_database) as served:
        job_id = served.enqueue(queue)[0]
        served.store.claim("ada", 1, [queue])
        holdfast = CommandLine(tmp_path, served.url)
        arguments = holdfast.arguments("top", "--interval", "0.1")
        with terminal(arguments, tmp_path, holdfast.environment(HOLDFAST_TOKEN=served.tokens["viewer"])) as screen:
            screen.wait_to_show(job_id)
            served.control.stop()
            screen.wait_to_show("the store is away", "cannot be reached", job_id)
            port = urlsplit(served.url).port
            assert port is not None
            again = ControlPlane(
                ServeSettings(database_url=served_database, port=port, duties=False, stop_seconds=10.0)
            )
            again.start()
            try:
                served.store.pause_queue(queue)
                screen.wait_to_show("paused", served.url)
                assert not screen.shows("cannot be reached")
                screen.press("q")
                assert screen.ended() == 0
                assert screen.restored
            finally:
                again.stop()
