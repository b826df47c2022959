"""A database in use never looks damaged: every page is one moment of it."""

import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine, event, text

from holdfast.maintenance.verify import verify
from holdfast.stores.histories import Histories
from tests.servers.waiting import wait_until
from tests.verify.conftest import open_engine
from tests.verify.ledger import ALL, FAR, Ledger, count, job_id

# Each is legal wherever its WHERE lets it act; the database makes transitions of them.
TYPED = (
    "UPDATE holdfast_jobs SET state = 'running', lease_owner = 'typist', lease_token = :fresh,"
    f" lease_expires_at = '{FAR}' WHERE id = :id AND state IN ('pending', 'retryable')",
    "UPDATE holdfast_jobs SET state = 'succeeded' WHERE id = :id AND state = 'running'",
    "UPDATE holdfast_jobs SET state = 'retryable' WHERE id = :id AND state = 'running'",
    "UPDATE holdfast_jobs SET state = 'pending' WHERE id = :id AND state IN ('running', 'failed', 'cancelled')",
    "UPDATE holdfast_jobs SET state = 'failed' WHERE id = :id AND state = 'running'",
    "UPDATE holdfast_jobs SET state = 'cancelled' WHERE id = :id AND state IN ('pending', 'retryable', 'running')",
    f"UPDATE holdfast_jobs SET cancel_requested_at = '{FAR}' WHERE id = :id AND state = 'running'",
    f"UPDATE holdfast_jobs SET heartbeat_at = '{FAR}' WHERE id = :id",
    "DELETE FROM holdfast_jobs WHERE id = :id AND state IN ('succeeded', 'failed', 'cancelled')",
)
ENQUEUE = "INSERT INTO holdfast_jobs (id, task) VALUES (:id, 'count')"
RETIRE = (
    "INSERT INTO holdfast_retired_histories"
    " SELECT job_id FROM holdfast_events WHERE job_id = :id AND event = 'pruned' ON CONFLICT DO NOTHING"
)
FIRST_OF_MANY, LAST = 1_000, 1_000_000  # numbers of jobs behind all others
CLAIM, SUCCEED, PRUNE = TYPED[0], TYPED[1], TYPED[-1]


class Typist:
    """Types transitions: of the jobs that all typists share, and of a few of its own that come and go."""

    def __init__(self, engine: Engine, seed: int) -> None:
        self._engine = engine
        self._random = random.Random(seed)
        self._ids = [job_id(number) for number in ALL]

    def type_until(self, stop: threading.Event) -> None:
        with self._engine.connect() as connection:
            while not stop.is_set():
                self._type(connection, self._random.choice([ENQUEUE, RETIRE, *TYPED * 5]))

    def _type(self, connection: Connection, statement: str) -> None:
        if statement is ENQUEUE:
            self._ids.append(str(uuid.UUID(int=self._random.getrandbits(128), version=4)))
            self._ids = self._ids[-2 * len(ALL) :]
        chosen = self._ids[-1] if statement is ENQUEUE else self._random.choice(self._ids)
        connection.execute(text(statement), {"id": chosen, "fresh": uuid.uuid4().hex})
        connection.commit()


@contextmanager
def running(*works: Callable[[threading.Event], None]) -> Iterator[None]:
    """Threads that work until the block ends; pytest fails the test when one of them breaks."""
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop,)) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_transitions_never_look_like_damage(healthy: Engine) -> None:
    def has_more_events_than(seen: int) -> bool:
        return count(healthy, "holdfast_events") > seen

    typists = [Typist(healthy, seed) for seed in range(3)]
    with running(*(typist.type_until for typist in typists)):
        for page_events in (10, 50, 2000) * 5:
            verdict = verify(Histories(healthy, page_events))
            assert verdict.violations == ()
            wait_until(partial(has_more_events_than, verdict.events + 20), what="transitions go on")
    assert verify(Histories(healthy)).ok


def test_a_transition_between_two_reads_of_a_page_is_not_seen_by_half(healthy_url: str, healthy: Engine) -> None:
    """After every single read a job is claimed, finished, pruned or retired, or the next one is enqueued."""
    statements: list[str] = []
    script = [ENQUEUE, CLAIM, SUCCEED, PRUNE, RETIRE]

    def interfere(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith("SELECT"):
            life, step = divmod(len(statements), len(script))
            statements.append(script[step])
            with writer.connect() as connection:  # an id is never used twice
                connection.execute(text(script[step]), {"id": job_id(FIRST_OF_MANY + life), "fresh": "fresh"})
                connection.commit()

    writer = open_engine(healthy_url)
    with writer.connect() as connection:  # the last history, behind those that come and go
        Ledger(connection).enqueue(LAST)
        connection.commit()
    event.listen(healthy, "after_cursor_execute", interfere)
    for page_events in (1, 3, 8, 21, 2000) * 2:
        assert verify(Histories(healthy, page_events)).violations == ()
    assert len(statements) > 100
    writer.dispose()


def test_a_reader_in_the_middle_of_a_long_history_stops_nobody(healthy: Engine) -> None:
    reading = iter(Histories(healthy, page_events=1))
    history = next(reading)
    with healthy.connect() as connection:
        connection.execute(text(CLAIM), {"id": history.job_id, "fresh": "fresh"})
        connection.commit()
    assert [event.event for event in history.events] == ["enqueued"]
    assert history.row is not None
    assert history.row.state == "pending"
    reading.close()
    assert verify(Histories(healthy)).ok
