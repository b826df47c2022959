"""Every arrow of the lifecycle is accepted by the database, and every other triple of event, from and to is refused."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from holdfast.domain.lifecycle import MOVES, TERMINAL, Charge, Event, State, find_move
from holdfast.domain.outcome import Released, Succeeded
from holdfast.domain.retry import RetryPolicy
from holdfast.stores.sql_store import SqlStore
from tests.contract.ground import FAR, ByHand, run
from tests.contract.steps import BROKEN, HOPELESS, KILLED, claim_this, enqueue, settle_well

# What an update sets besides event, state and seq, to charge what its arrow must charge.
CHARGED = {
    Charge.NOTHING: [""],
    Charge.ATTEMPT: [", attempt = attempt + 1"],
    Charge.FAILURE: [", failures = failures + 1"],
    Charge.CRASH: [", crashes = crashes + 1"],
    Charge.FAILURE_OR_CRASH: [", failures = failures + 1", ", crashes = crashes + 1"],
    Charge.RESET: [", failures = 0, crashes = 0"],
}
NEVER_CHARGED = [
    ", attempt = attempt + 2",
    ", attempt = attempt - 1",
    ", failures = failures + 2",
    ", failures = failures - 1",
    ", crashes = crashes - 1",
    ", failures = 0",
    ", failures = failures + 1, crashes = crashes + 1",
    ", attempt = attempt + 1, failures = failures + 1",
    ", failures = failures + 2, crashes = crashes - 1",
]
EVERY_CHARGE = [*{charge: None for charges in CHARGED.values() for charge in charges}, *NEVER_CHARGED]


def charges_of(event: str) -> list[str]:
    """What any arrow of that name charges; and nothing, which any update could try."""
    own = [charge for move in MOVES if move.event == event for charge in CHARGED[move.charge]]
    return list(dict.fromkeys(["", *own]))


def charged_job(store: SqlStore, state: State) -> None:
    """A job in this state that has two failures and two crashes behind it, so that no charge looks like another."""
    at_once = RetryPolicy("fixed", base=0.0, jitter=0.0)
    job_id = enqueue(store, max_attempts=99, max_crashes=99, retry=at_once)
    for outcome in (KILLED, BROKEN, KILLED, BROKEN):
        settle_well(store, claim_this(store, job_id), outcome)
    if state is State.RETRYABLE:
        return
    claimed = claim_this(store, job_id)
    match state:
        case State.SUCCEEDED:
            settle_well(store, claimed, Succeeded())
        case State.FAILED:
            settle_well(store, claimed, HOPELESS)
        case State.PENDING | State.CANCELLED:
            settle_well(store, claimed, Released())
        case _:
            pass
    if state is State.CANCELLED:
        store.cancel([job_id])
    assert store.job(job_id).state is state


def update(event: str, target: str, charge: str, seq: str = "seq + 1") -> str:
    """A move spelled out in full, as the engine would write it."""
    lease = "lease_token = NULL, lease_expires_at = NULL, lease_owner = NULL"
    if target == State.RUNNING:
        lease = (
            f"lease_token = coalesce(lease_token, 'typed'), lease_expires_at = coalesce(lease_expires_at, '{FAR}'),"
            " lease_owner = coalesce(lease_owner, 'typed')"
        )
    ended = "updated_at" if target in TERMINAL else "NULL"
    return (
        f"UPDATE holdfast_jobs SET state = '{target}', transition = '{event}', seq = {seq}, {lease},"
        f" finished_at = {ended}{charge}"
    )


class Trial:
    """One connection on which everything that is tried is undone again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        [(self._source, self._seq)] = run(connection, "SELECT state, seq FROM holdfast_jobs")

    def accepts(self, statement: str) -> bool:
        """Whether the database takes it; if so, with exactly the audit row that the statement stands for."""
        try:
            run(self._connection, statement)
        except IntegrityError as error:
            if "holdfast: " not in str(error):
                raise
            return False
        else:
            self._check_log()
            return True
        finally:
            self._connection.rollback()

    def _check_log(self) -> None:
        row = "SELECT transition, state, seq, attempt FROM holdfast_jobs"
        [(event, target, seq, attempt)] = run(self._connection, row)
        log = "SELECT event, from_state, to_state, seq, attempt FROM holdfast_events ORDER BY seq DESC LIMIT 1"
        assert run(self._connection, log) == [(event, self._source, target, seq, attempt)]
        assert seq == self._seq + 1


@contextmanager
def trial(by_hand: ByHand) -> Iterator[Trial]:
    with by_hand.engine.connect() as connection:
        yield Trial(connection)


@pytest.mark.parametrize("state", State)
def test_every_arrow_of_the_table_is_accepted_with_its_charge_and_no_other(
    store: SqlStore, by_hand: ByHand, state: State
) -> None:
    charged_job(store, state)
    with trial(by_hand) as tried:
        for move in MOVES:
            if move.source is state and move.target is not None:
                taken = {charge for charge in EVERY_CHARGE if tried.accepts(update(move.event, move.target, charge))}
                assert taken == set(CHARGED[move.charge]), f"{move.event} from {state} to {move.target}"


@pytest.mark.parametrize("state", State)
def test_every_other_triple_is_refused(store: SqlStore, by_hand: ByHand, state: State) -> None:
    charged_job(store, state)
    with trial(by_hand) as tried:
        for event in (*Event, "none", ""):
            for target in State:
                if find_move(event, state, target) is None:
                    for charge in charges_of(event):
                        assert not tried.accepts(update(event, target, charge)), f"{event}: {state} to {target}"


@pytest.mark.parametrize("state", State)
def test_no_number_but_the_next_is_ever_taken(store: SqlStore, by_hand: ByHand, state: State) -> None:
    charged_job(store, state)
    with trial(by_hand) as tried:
        for move in MOVES:
            if move.source is state and move.target is not None:
                for seq in ("seq + 2", "seq - 1", "1", "0", "-seq"):
                    assert not tried.accepts(update(move.event, move.target, CHARGED[move.charge][0], seq))


@pytest.mark.parametrize("state", State)
def test_only_the_ended_are_pruned(store: SqlStore, by_hand: ByHand, state: State) -> None:
    charged_job(store, state)
    with by_hand.engine.connect() as connection:
        if find_move(Event.PRUNED, state, None) is None:
            with pytest.raises(IntegrityError, match="only a finished job"):
                run(connection, "DELETE FROM holdfast_jobs")
            return
        run(connection, "DELETE FROM holdfast_jobs")
        log = "SELECT event, from_state, to_state FROM holdfast_events ORDER BY seq DESC LIMIT 1"
        assert run(connection, log) == [("pruned", str(state), None)]


def test_only_an_enqueued_pending_job_is_inserted(store: SqlStore, by_hand: ByHand) -> None:
    assert store.jobs().items == ()
    with by_hand.engine.connect() as connection:
        for event in Event:
            for state in State:
                lease = f"'typed', '{FAR}', 'typed'" if state is State.RUNNING else "NULL, NULL, NULL"
                ended = f"'{FAR}'" if state in TERMINAL else "NULL"
                statement = (
                    "INSERT INTO holdfast_jobs"
                    " (task, state, transition, lease_token, lease_expires_at, lease_owner, finished_at)"
                    f" VALUES ('add', '{state}', '{event}', {lease}, {ended})"
                )
                if find_move(event, None, state) is not None:
                    run(connection, statement)
                    logged = run(connection, "SELECT event, from_state, to_state, seq FROM holdfast_events")
                    assert logged == [("enqueued", None, "pending", 1)]
                else:
                    with pytest.raises(IntegrityError, match="inserted as pending"):
                        run(connection, statement)
                connection.rollback()
