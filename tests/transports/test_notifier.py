"""The sender: it tells of every job that can be claimed at once, in few words, and never gets in the way."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from holdfast.domain.job import Claimed, NewJob
from holdfast.domain.outcome import Crashed, Failed, JobError, Outcome, Released, Report, Snoozed, Succeeded
from holdfast.stores.postgres_url import libpq_url
from holdfast.stores.sql_store import SqlStore
from holdfast.transports.pg_notify import CHANNEL, PER_SECOND, Notifier
from holdfast.wiring.sql import open_store
from tests.chaos.proxy import ForgetfulProxy
from tests.servers.waiting import DEADLINE_SECONDS, wait_until
from tests.transports.conftest import Ears, opened

JOB = NewJob(task="work")
END = "the end"


def wait_for(ears: Ears, count: int) -> None:
    wait_until(lambda: ears.rung >= count, what=f"{count} notifications")


def settle(store: SqlStore, claimed: Claimed, outcome: Outcome) -> None:
    store.settle([Report(claimed.job_id, claimed.attempt, claimed.lease_token, outcome)])


def hear_all(store: SqlStore, url: str, ears: Ears) -> None:
    """Until everything has been heard that the store tells: its thread has nothing more to do, and a notification of
    ours, which the server delivers after all those from before, has come."""
    notifier = getattr(store._claimable, "__self__", None)
    if isinstance(notifier, Notifier):
        wait_until(lambda: notifier._thread is None or notifier._is_waiting, what="the sender has nothing to do")
    with psycopg.connect(libpq_url(url), autocommit=True) as mine:
        mine.execute(f"NOTIFY {CHANNEL}, '{END}'")
    wait_until(lambda: END in ears.heard, what="the last notification")


def test_enqueue_notifies_with_an_empty_payload(store: SqlStore, ears: Ears, postgres_url: str) -> None:
    store.enqueue(JOB)
    wait_for(ears, 1)
    store.enqueue_many([JOB] * 50)
    wait_for(ears, 2)
    hear_all(store, postgres_url, ears)
    assert ears.heard == ["", "", END]


def test_what_is_given_back_and_requeued_notifies(store: SqlStore, ears: Ears, postgres_url: str) -> None:
    store.enqueue(JOB)
    wait_for(ears, 1)
    given_back: list[Outcome] = [Released(), Crashed("killed")]
    for count, outcome in enumerate(given_back, start=2):
        settle(store, store.claim("worker")[0], outcome)
        wait_for(ears, count)
    [claimed] = store.claim("worker")
    settle(store, claimed, Failed(JobError("bad", "never", retryable=False)))
    store.requeue([claimed.job_id])
    wait_for(ears, 4)
    hear_all(store, postgres_url, ears)
    assert ears.rung == 4


@pytest.mark.parametrize("outcome", [Succeeded(), Snoozed(60), Failed(JobError("flaky", "later"))])
def test_what_leaves_nothing_to_claim_is_not_told(
    store: SqlStore, ears: Ears, postgres_url: str, outcome: Outcome
) -> None:
    store.enqueue(JOB)
    wait_for(ears, 1)
    settle(store, store.claim("worker")[0], outcome)
    store.enqueue(NewJob(task="later", delay=60))
    hear_all(store, postgres_url, ears)
    assert ears.rung == 1


def test_a_job_in_the_users_own_transaction_is_left_to_polling(store: SqlStore, ears: Ears, postgres_url: str) -> None:
    with psycopg.connect(libpq_url(postgres_url)) as mine:
        store.enqueue(JOB, connection=mine)
    hear_all(store, postgres_url, ears)
    assert ears.rung == 0


def test_a_thousand_jobs_are_told_in_few_words_and_the_last_is_never_lost(store: SqlStore, ears: Ears) -> None:
    began = time.monotonic()
    for _ in range(1000):
        last = time.monotonic()
        store.enqueue(JOB)
    took = time.monotonic() - began
    wait_until(lambda: ears.last_heard_at > last, what="the last is told")
    # The sender sleeps between two notifications: on a slow machine there are fewer of them in a second.
    assert ears.rung <= PER_SECOND * took + 3


@pytest.mark.parametrize("begins", [False, True])
def test_every_poke_is_followed_by_a_word(begins: bool) -> None:
    pokes, told = [0], [0, 0]

    def send() -> None:
        told[:] = [pokes[0], told[1] + 1]

    def begin() -> Callable[[], None] | None:
        if not begins:
            return None
        send()
        return lambda: time.sleep(0.0001)  # others poke while the answer is awaited

    notifier = Notifier(send, begin, per_second=500)
    began = time.monotonic()
    for number in range(20_000):
        pokes[0] += 1
        notifier.poke()
        if number % 100 == 0:
            time.sleep(0.003)  # longer than a pause: the next poke finds nothing under way
    wait_until(lambda: told[0] == pokes[0], what="the last is told")
    notifier.close()
    assert told[1] <= 500 * (time.monotonic() - began) + 3, "it sleeps between two of them"


def test_in_a_flood_the_pauses_become_long(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    told = [0]

    def send() -> None:
        told[0] += 1
        for _ in range(3 if told[0] < 8 else 0):
            notifier.poke()

    notifier = Notifier(send, per_second=100, in_a_flood_per_second=2)
    monkeypatch.setattr(notifier, "_rest", pauses.append)
    notifier.poke()
    wait_until(lambda: len(pauses) == 8 and notifier._is_waiting, what="the flood")
    notifier.poke()
    wait_until(lambda: len(pauses) == 9, what="a poke that comes alone")
    notifier.close()
    assert pauses == [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5, 0.5, 0.01]


def test_who_pokes_lets_the_word_go_and_another_thread_waits_for_the_answer() -> None:
    said: list[tuple[str, int]] = []

    def note(what: str) -> None:
        said.append((what, threading.get_ident()))

    def begin() -> Callable[[], None]:
        note("begun")
        return lambda: note("finished")

    notifier = Notifier(lambda: note("sent"), begin)
    notifier.poke()  # there is no thread yet: it begins with a word of its own
    wait_until(lambda: len(said) == 1, what="the first word")
    wait_until(lambda: notifier._is_waiting, what="nothing to do")
    notifier.poke()
    here = threading.get_ident()
    assert said[1] == ("begun", here)
    wait_until(lambda: len(said) == 3, what="the answer")
    notifier.close()
    assert [what for what, _ in said] == ["sent", "begun", "finished"]
    assert said[0][1] == said[2][1] != here


@pytest.mark.parametrize("problem", [OSError, KeyboardInterrupt])
def test_a_word_that_cannot_be_begun_is_sent(problem: type[BaseException]) -> None:
    sent: list[None] = []

    def begin() -> None:
        raise problem

    notifier = Notifier(lambda: sent.append(None), begin)
    for count in range(1, 4):
        with suppress(KeyboardInterrupt):
            notifier.poke()
        wait_until(lambda count=count: len(sent) == count, what="a word")  # type: ignore[misc]
        wait_until(lambda: notifier._is_waiting, what="nothing to do")
    notifier.close()


def test_switched_off_nothing_is_sent(postgres_url: str, ears: Ears) -> None:
    with opened(postgres_url, notify=False) as store:
        store.enqueue_many([JOB] * 3)
        hear_all(store, postgres_url, ears)
    assert ears.heard == [END]


def test_close_sends_what_is_pending(postgres_url: str, ears: Ears, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.transports.pg_notify.FLUSH_SECONDS", DEADLINE_SECONDS)
    for count in range(1, 6):
        with opened(postgres_url) as store:
            store.enqueue(JOB)
        wait_for(ears, count)


def test_a_short_process_notifies_at_its_end(postgres_url: str, ears: Ears) -> None:
    code = "import sys; from holdfast.wiring.sql import open_store; from holdfast.domain.job import NewJob; "
    code += f"import holdfast.transports.pg_notify as sender; sender.FLUSH_SECONDS = {DEADLINE_SECONDS}; "
    code += "open_store(sys.argv[1]).enqueue(NewJob(task='work'))"
    subprocess.run([sys.executable, "-c", code, postgres_url], check=True, cwd=Path(__file__).parents[2])
    wait_for(ears, 1)


def test_a_sender_that_fails_is_nobodys_problem_and_goes_on_later() -> None:
    tries: list[float] = []
    works = threading.Event()

    def send() -> None:
        tries.append(time.monotonic())
        if not works.is_set():
            raise OSError("away")

    notifier = Notifier(send)
    notifier.poke()
    wait_until(lambda: len(tries) == 1, what="the first try")
    works.set()
    notifier.poke()
    wait_until(lambda: len(tries) == 2, what="another, after a wait")
    notifier.close()
    notifier.poke()
    assert len(tries) == 2


def test_close_does_not_wait_for_a_sender_that_is_stuck() -> None:
    began, over = threading.Event(), threading.Event()

    def send() -> None:
        began.set()
        over.wait()

    notifier = Notifier(send)
    notifier.poke()
    assert began.wait(DEADLINE_SECONDS)
    notifier.close()
    assert notifier._thread is not None
    assert notifier._thread.is_alive()
    over.set()


def test_an_enqueue_does_not_wait_for_a_sender_in_a_black_hole(proxy: ForgetfulProxy) -> None:
    store = open_store(proxy.url, timeout_seconds=DEADLINE_SECONDS)
    store.enqueue(JOB)
    proxy.lose_answer_to(b"NOTIFY")
    for _ in range(20):
        store.enqueue(JOB)
    assert len(store.claim("worker", 100)) == 21
    store.close()
