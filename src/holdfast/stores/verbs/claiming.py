"""Claim: the ungoverned form is one statement; with limits in play it is one transaction.

Whether any limit exists at all is remembered for five seconds, so that an idle worker, which polls
every two, stays within one query a second. That memory decides nothing about safety: the ungoverned
statement leaves every limited source and queue alone; it only decides how soon their jobs are looked at.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.domain import digests
from holdfast.domain.admission import SourceStanding
from holdfast.domain.errors import InvalidInput, StoreUnavailable
from holdfast.domain.job import Claimed
from holdfast.domain.names import check_integer, check_name
from holdfast.stores import rows
from holdfast.stores.database import CursorTransaction, Database, Row
from holdfast.stores.statements import admission
from holdfast.stores.statements import claim as sql
from holdfast.stores.statements.words import POSTGRES, Statement
from holdfast.stores.verbs import claim_requests
from holdfast.stores.verbs.sqlite_walk import walk

MAX_BATCH = 10_000
LIMITS_REMEMBERED_SECONDS = 5.0
UNANSWERED_KEPT = 100
UNANSWERED_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checked request for work."""

    worker: str
    limit: int
    queues: tuple[str, ...] | None
    tasks: tuple[str, ...] | None
    credential: str = ""


@dataclass(slots=True)
class Admission:
    """What the limits let in, while their rows are locked. A name that is absent is not limited, or not ours now."""

    sources: dict[str, SourceStanding]
    allowances: dict[str, int | None]
    queues: dict[str, int]

    def tighten(self, name: str, taken: int) -> float | None:
        level = self.sources[name].level
        return None if level is None else max(level - taken, 0.0)


class Claiming:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._busy_spell = False
        self._limits_exist = True
        self._limits_looked_at = float("-inf")
        self._unanswered: deque[tuple[float, str, bytes]] = deque(maxlen=UNANSWERED_KEPT)

    def claim(
        self,
        worker: str,
        limit: int,
        queues: Sequence[str] | None,
        tasks: Sequence[str] | None,
        credential: str = "",
        request_id: str | None = None,
    ) -> list[Claimed]:
        wanted = _checked(worker, limit, queues, tasks, credential)
        if wanted.queues == () or wanted.tasks == ():
            return []
        governed = self._database.dialect != POSTGRES or self._limits()
        if request_id is not None:
            return self._claim_once(wanted, governed, request_id)
        if governed:
            with self.secret(credential) as secret, self._database.transaction() as transaction:
                return _claim_governed(transaction, wanted, secret)
        return self._claim_ungoverned(wanted)

    def _claim_once(self, wanted: Wanted, governed: bool, request_id: str) -> list[Claimed]:
        """Within one transaction, because what was granted is written down with it."""

        def claim(transaction: CursorTransaction, secret: bytes) -> list[Claimed]:
            if governed:
                return _claim_governed(transaction, wanted, secret)
            return _claim_window(transaction, wanted, _wide(wanted), secret)

        return claim_requests.once(self._database, wanted.credential, request_id, claim)

    @contextmanager
    def secret(self, credential: str) -> Iterator[bytes]:
        """One secret a claim. If the store breaks off, the claim may be committed all the same: the secret is kept, so
        that `recover` can tell which leases are ours."""
        secret = os.urandom(32)
        try:
            yield secret
        except StoreUnavailable:
            self._unanswered.append((time.monotonic(), credential, secret))
            raise

    def recover(self, worker: str, credential: str) -> list[Claimed]:
        """The jobs of claims that were committed while their answer was lost. No query when none was lost lately: a
        server that has lost its client may take a while to notice, and commit after the first look."""
        oldest = time.monotonic() - UNANSWERED_SECONDS
        lost = list(self._unanswered)
        secrets = [secret for since, asker, secret in lost if since > oldest and asker == credential]
        if not secrets:
            return []
        with self._database.reading() as transaction:
            held = transaction.rows(sql.HELD, {"worker": check_name(worker, "worker")})
        return [job for row in held if (job := _ours(row, secrets, credential, self._database.dialect)) is not None]

    def _claim_ungoverned(self, wanted: Wanted) -> list[Claimed]:
        """Rows that others have locked are skipped. If that left nothing in a busy spell, look further down the line;
        an idle worker stays at one query a poll."""
        found = self._claim_in(wanted, wanted.limit // 2 + 16)
        if not found and self._busy_spell:
            found = self._claim_in(wanted, _wide(wanted))
        self._busy_spell = bool(found)
        return found

    def _claim_in(self, wanted: Wanted, slack: int) -> list[Claimed]:
        with self.secret(wanted.credential) as secret, self._database.statement() as transaction:
            return _claim_window(transaction, wanted, slack, secret)

    def limits_changed(self) -> None:
        """Look again at the next claim; other processes notice within five seconds."""
        self._limits_looked_at = float("-inf")

    def _limits(self) -> bool:
        if time.monotonic() - self._limits_looked_at > LIMITS_REMEMBERED_SECONDS:
            with self._database.reading() as transaction:
                self._limits_exist = bool(transaction.rows(admission.ANY_LIMITS)[0][0])
            self._limits_looked_at = time.monotonic()
        return self._limits_exist


def _wide(wanted: Wanted) -> int:
    """How many more rows than wanted to look at where others have many locked."""
    return wanted.limit * 8 + 256


def _claim_window(transaction: CursorTransaction, wanted: Wanted, slack: int, secret: bytes) -> list[Claimed]:
    statement = sql.CLAIM if wanted.queues is not None else sql.CLAIM_ALL_QUEUES
    found = transaction.rows(statement, _parameters(wanted, secret, wanted.limit + slack))
    return _claimed(found, wanted, secret, POSTGRES)


def read_admission(transaction: CursorTransaction, queues: Sequence[str] | None) -> Admission:
    """Lock what is limited and has work waiting in these queues; then count what runs, on a fresh snapshot."""
    limited = {row[0]: row[1] for row in _locked(transaction, _QUEUE_LOCKS, queues)}
    sources = {row[0]: SourceStanding(*row) for row in _locked(transaction, _SOURCE_LOCKS, queues)}
    by_queue = _counts(transaction, admission.RUNNING_BY_QUEUE, list(limited))
    by_source = _counts(transaction, admission.RUNNING_BY_SOURCE, list(sources))
    return Admission(
        sources=sources,
        allowances={name: source.allowance(by_source.get(name, 0)) for name, source in sources.items()},
        queues={name: max(0, most - by_queue.get(name, 0)) for name, most in limited.items()},
    )


_QUEUE_LOCKS = (admission.LOCK_QUEUES, admission.LOCK_ALL_QUEUES)
_SOURCE_LOCKS = (admission.LOCK_SOURCES, admission.LOCK_ALL_SOURCES)


def _locked(
    transaction: CursorTransaction, statements: tuple[Statement, Statement], queues: Sequence[str] | None
) -> list[Row]:
    some, every = statements
    return transaction.rows(every) if queues is None else transaction.rows(some, {"queues": json.dumps(queues)})


def _counts(transaction: CursorTransaction, statement: Statement, names: list[str]) -> dict[str, int]:
    if not names:
        return {}
    found = transaction.rows(statement, {"names": json.dumps(names)})
    return {row[0]: row[1] for row in found}


def _claim_governed(transaction: CursorTransaction, wanted: Wanted, secret: bytes) -> list[Claimed]:
    admitted = read_admission(transaction, wanted.queues)
    if transaction.dialect == POSTGRES:
        found = _claim_governed_postgres(transaction, wanted, admitted, secret)
    else:
        ids = walk(transaction, wanted.queues, wanted.tasks, wanted.limit, admitted.allowances, admitted.queues)
        found = claim_rows(transaction, wanted.worker, ids, secret, wanted.credential)
    spend(transaction, admitted, found)
    return _claimed(found, wanted, secret, transaction.dialect)


def _claim_governed_postgres(
    transaction: CursorTransaction, wanted: Wanted, admitted: Admission, secret: bytes
) -> list[Row]:
    statement = sql.CLAIM_GOVERNED if wanted.queues is not None else sql.CLAIM_GOVERNED_ALL_QUEUES
    parameters = _parameters(wanted, secret, wanted.limit * 2 + 256)
    parameters["sources"] = _allowances({n: a for n, a in admitted.allowances.items() if a is None or a > 0})
    parameters["limited"] = _allowances({n: a for n, a in admitted.queues.items() if a > 0})
    return transaction.rows(statement, parameters)


def claim_rows(
    transaction: CursorTransaction, worker: str, ids: Sequence[str], secret: bytes, credential: str
) -> list[Row]:
    if not ids:
        return []
    chosen = [{"id": i, "digest": digests.token_digest(digests.lease_token(secret, i), credential)} for i in ids]
    found = {row[0]: row for row in transaction.rows(sql.CLAIM_ROWS, {"worker": worker, "rows": json.dumps(chosen)})}
    return [found[i] for i in ids if i in found]


def spend(transaction: CursorTransaction, admitted: Admission, found: Sequence[Row]) -> None:
    """Take what was claimed out of the token buckets."""
    taken: dict[str, int] = {}
    for row in found:
        source = row[4]
        if source in admitted.sources and admitted.sources[source].level is not None:
            taken[source] = taken.get(source, 0) + 1
    if taken:
        levels = [{"name": name, "level": admitted.tighten(name, count)} for name, count in taken.items()]
        transaction.run(admission.SPEND, {"rows": json.dumps(levels)})


def _allowances(allowances: dict[str, int | None] | dict[str, int]) -> str:
    return json.dumps([{"name": name, "allowance": allowance} for name, allowance in allowances.items()])


def _parameters(wanted: Wanted, secret: bytes, window: int) -> dict[str, object]:
    parameters: dict[str, object] = {
        "worker": wanted.worker,
        "secret": secret,
        "binding": digests.binding(wanted.credential),
        "limit": wanted.limit,
        "window": window,
        "tasks": None if wanted.tasks is None else json.dumps(wanted.tasks),
    }
    if wanted.queues is not None:
        parameters["queues"] = json.dumps(wanted.queues)
    return parameters


def _claimed(found: Sequence[Row], wanted: Wanted, secret: bytes, dialect: str) -> list[Claimed]:
    """In the order they are to be run: an UPDATE returns its rows in no order at all."""
    places = {name: place for place, name in enumerate(wanted.queues or ())}
    ordered = sorted(found, key=lambda row: (places.get(row[3], 0), -row[-2], row[-1], row[0]))
    return [rows.claimed(row, dialect, digests.lease_token(secret, row[0])) for row in ordered]


def _ours(row: Row, secrets: Iterable[bytes], credential: str, dialect: str) -> Claimed | None:
    digest = row[-1]
    tokens = (digests.lease_token(secret, row[0]) for secret in secrets)
    token = next((token for token in tokens if digests.token_digest(token, credential) == digest), None)
    return None if token is None else rows.claimed(row[:-1], dialect, token)


def _checked(
    worker: str, limit: int, queues: Sequence[str] | None, tasks: Sequence[str] | None, credential: str = ""
) -> Wanted:
    check_name(worker, "worker")
    check_integer(limit, "limit", 1, MAX_BATCH)
    for field, names in (("queues", queues), ("tasks", tasks)):
        if isinstance(names, str):
            raise InvalidInput(field, "must be a list of names, not one string")
    return Wanted(
        worker,
        limit,
        None if queues is None else tuple(dict.fromkeys(check_name(name, "queues") for name in queues)),
        None if tasks is None else tuple(dict.fromkeys(check_name(name, "tasks") for name in tasks)),
        credential,
    )
