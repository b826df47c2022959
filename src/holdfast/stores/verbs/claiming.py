"""Claim: the ungoverned form is one statement; with limits in play it is one transaction.

Whether any limit exists at all is remembered for five seconds; a claim that finds nothing says it again, so that who is
idle makes one query a poll. That memory decides nothing about safety: the ungoverned statement leaves every limited
source and queue alone; it only decides how soon their jobs are looked at.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from holdfast.domain import digests
from holdfast.domain.errors import InvalidInput
from holdfast.domain.job import Claimed, ClaimedJobs
from holdfast.domain.names import check_integer, check_name
from holdfast.stores import rows
from holdfast.stores.arrays import array, quoted
from holdfast.stores.database import CursorTransaction, Database, Row
from holdfast.stores.known_limits import KnownLimits
from holdfast.stores.statements import admission
from holdfast.stores.statements import claim as sql
from holdfast.stores.statements.look import SPARE, STEADY
from holdfast.stores.statements.words import POSTGRES
from holdfast.stores.verbs import claim_requests
from holdfast.stores.verbs.admitting import Admission, again_in, claim_admitted
from holdfast.stores.verbs.looking import EXACT_LANES, SOME_LANES, Looking

MAX_BATCH = 10_000
MANY_LANES = 32
COUNT_LANES_EVERY = 16  # claims, while there are too many for an exact order
START = ("", "")  # before all lanes
BUSY_TRIES = 4  # asked for again after 2, 4 and 8 ms
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


class Claiming:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._busy_spell = False
        self._lane = START
        self._claims_cut = 0
        self._lanes: deque[tuple[str, str | None]] = deque(maxlen=MANY_LANES * 2)
        self.known_limits = KnownLimits(database)
        self._unanswered: deque[tuple[float, str, bytes]] = deque(maxlen=UNANSWERED_KEPT)

    def claim(
        self,
        worker: str,
        limit: int,
        queues: Sequence[str] | None,
        tasks: Sequence[str] | None,
        credential: str = "",
        request_id: str | None = None,
    ) -> ClaimedJobs:
        wanted = _checked(worker, limit, queues, tasks, credential)
        if wanted.queues == () or wanted.tasks == ():
            return ClaimedJobs()
        if self._database.dialect != POSTGRES or self.known_limits.exist() or self._many_lanes:
            return self._claim_governed(wanted, request_id)
        if request_id is not None:
            return self._claim_once(wanted, request_id)
        return self._claim_ungoverned(wanted)

    def _claim_governed(self, wanted: Wanted, request_id: str | None) -> ClaimedJobs:
        """A source that another claim has at this moment is free again in the next: nobody waits for it with anything
        in hand, so the whole claim is tried again."""
        for number in range(BUSY_TRIES):
            if number:
                time.sleep(0.001 * 2**number)
            claim = Governed(wanted, self._lane, self._lanes_to_look_at())
            if request_id is not None:
                found = claim_requests.once(self._database, wanted.credential, request_id, claim, STEADY)
            else:
                with self.secret(wanted.credential) as secret, self._database.transaction(STEADY) as transaction:
                    found = claim(transaction, secret)
            if found or not claim.was_busy:
                break
        self._remember_lanes(found)
        if found or not claim.was_busy:
            self._lane = claim.last_lane
        if not found and not claim.was_busy:
            self._lanes.clear()  # whoever has nothing to do asks in the cheapest way
        jobs = ClaimedJobs(found)
        jobs.again_in = claim.again_in
        return jobs

    def _lanes_to_look_at(self) -> int:
        """Few, as long as there are too many for an exact order. Whether there still are is seen now and then."""
        self._claims_cut = 0 if self._lane == START else self._claims_cut + 1
        return SOME_LANES if self._claims_cut % COUNT_LANES_EVERY else EXACT_LANES + 1  # one more tells of more

    def _claim_once(self, wanted: Wanted, request_id: str) -> ClaimedJobs:
        """Within one transaction, because what was granted is written down with it."""

        def claim(transaction: CursorTransaction, secret: bytes) -> list[Claimed]:
            return self._claim_window(transaction, wanted, _wide(wanted), secret)

        return ClaimedJobs(claim_requests.once(self._database, wanted.credential, request_id, claim))

    @contextmanager
    def secret(self, credential: str) -> Iterator[bytes]:
        """One secret per claim. After any error the claim may be committed all the same: the secret is kept, so that
        `recover` can tell which leases are ours."""
        secret = os.urandom(32)
        try:
            yield secret
        except Exception:
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
        return [job for row in held if (job := _ours(row, secrets, credential)) is not None]

    def _claim_ungoverned(self, wanted: Wanted) -> ClaimedJobs:
        """Rows that others have locked are skipped. If that left nothing in a busy spell, look further down the line;
        an idle worker stays at one query a poll."""
        found = self._claim_in(wanted, wanted.limit // 2 + 16)
        if not found and self._busy_spell:
            found = self._claim_in(wanted, _wide(wanted))
        self._busy_spell = bool(found)
        return ClaimedJobs(found)

    def _claim_in(self, wanted: Wanted, slack: int) -> list[Claimed]:
        with self.secret(wanted.credential) as secret, self._database.statement() as transaction:
            return self._claim_window(transaction, wanted, slack, secret)

    def _claim_window(self, transaction: CursorTransaction, wanted: Wanted, slack: int, secret: bytes) -> list[Claimed]:
        found = transaction.rows(sql.CLAIM, claim_parameters(wanted, secret, slack))
        if not found or found[0][0] is None:  # see `routines/claim.py`
            self.known_limits.seen(bool(found))
            return []
        claimed = _claimed(found, secret)
        self._remember_lanes(claimed)
        return claimed

    def limits_changed(self) -> None:
        """Look again at the next claim; other processes notice within five seconds."""
        self.known_limits.forget()

    def _remember_lanes(self, found: Sequence[Claimed]) -> None:
        if found:
            self._lanes.extend((job.task, job.source) for job in found[-MANY_LANES * 2 :])

    @property
    def _many_lanes(self) -> bool:
        """As of the last jobs, or because the last look did not take in all of them. The ungoverned statement merges
        all lanes there are: of many that costs more than to look first, and at some of them at a time."""
        return self._lane != START or len(set(self._lanes)) >= MANY_LANES


class Governed:
    """One claim under limits. What it has to say besides the jobs is about its last transaction."""

    def __init__(self, wanted: Wanted, after: tuple[str, str], lanes: int) -> None:
        self._wanted = wanted
        self._after = after
        self._lanes = lanes
        self.was_busy = False
        self.last_lane = START
        self.again_in: float | None = None

    def __call__(self, transaction: CursorTransaction, secret: bytes) -> list[Claimed]:
        wanted = self._wanted
        spare = SPARE if transaction.dialect == POSTGRES else 0  # on SQLite nobody else has anything locked
        looking = Looking(wanted.limit + spare, wanted.queues, wanted.tasks, self._lanes, self._after)

        def take(ids: Sequence[str], admitted: Admission) -> list[Row]:
            return claim_rows(transaction, wanted.worker, ids, secret, wanted.credential, admitted)

        found, admitted = claim_admitted(transaction, looking, wanted.limit, take)
        self.was_busy = admitted.busy
        if found and admitted.cut:
            # There are more lanes than a look takes in: the next one goes on behind the last that gave something, so
            # that every lane has its turn.
            self.last_lane = (found[-1][1], found[-1][4] or "")
        if not found:
            self.again_in = again_in(transaction, looking)
        return _claimed(self._in_order(found), secret)

    def _in_order(self, found: Sequence[Row]) -> list[Row]:
        """In which they are to be run: they were taken as their limits let them in."""
        places = {name: place for place, name in enumerate(self._wanted.queues or ())}
        return sorted(found, key=lambda row: (places.get(row[3], 0), -row[-2], row[-1], row[0]))


def _wide(wanted: Wanted) -> int:
    """How many more rows than wanted to look at where others have many locked."""
    return wanted.limit * 8 + 256


def claim_rows(
    transaction: CursorTransaction, worker: str, ids: Sequence[str], secret: bytes, credential: str, admitted: Admission
) -> list[Row]:
    """Claim these, in that order, and take them out of the token buckets."""
    if not ids:
        return []
    parameters: dict[str, object] = {"worker": worker}
    if transaction.dialect == POSTGRES:
        parameters |= {"ids": json.dumps(ids), "secret": secret, "binding": digests.binding(credential)}
        parameters |= {"sources": json.dumps(list(admitted.sources)), "queues": json.dumps(list(admitted.queues))}
    else:  # which cannot compute a digest
        chosen = [{"id": i, "digest": digests.token_digest(digests.lease_token(secret, i), credential)} for i in ids]
        parameters["rows"] = json.dumps(chosen)
    found = {row[0]: row for row in transaction.rows(sql.CLAIM_ROWS, parameters)}
    if transaction.dialect != POSTGRES:  # there the claim has done it
        _spend(transaction, found.values(), admitted)
    return [found[i] for i in ids if i in found]


def _spend(transaction: CursorTransaction, found: Iterable[Row], admitted: Admission) -> None:
    """Take what was claimed out of the token buckets."""
    taken = Counter(row[4] for row in found if row[4] in admitted.metered)
    if taken:
        transaction.run(admission.SPEND, {"taken": json.dumps(taken)})


def claim_parameters(wanted: Wanted, secret: bytes, slack: int) -> dict[str, object]:
    """`slack`: so many more rows than wanted are looked at where several lanes are merged, in case others have some of
    them locked."""
    return {
        "worker": wanted.worker,
        "secret": secret,
        "binding": digests.binding(wanted.credential),
        "limit": wanted.limit,
        "slack": slack,
        "queues": _array(wanted.queues),
        "tasks": _array(wanted.tasks),
    }


@lru_cache(100)
def _array(names: tuple[str, ...] | None) -> str | None:
    return None if names is None else array(map(quoted, names))


def _claimed(found: Sequence[Row], secret: bytes) -> list[Claimed]:
    return [rows.claimed(row, digests.lease_token(secret, row[0])) for row in found]


def _ours(row: Row, secrets: Iterable[bytes], credential: str) -> Claimed | None:
    digest = row[-1]
    tokens = (digests.lease_token(secret, row[0]) for secret in secrets)
    token = next((token for token in tokens if digests.token_digest(token, credential) == digest), None)
    return None if token is None else rows.claimed(row[:-1], token)


def _checked(
    worker: str, limit: int, queues: Sequence[str] | None, tasks: Sequence[str] | None, credential: str = ""
) -> Wanted:
    check_name(worker, "worker")
    check_integer(limit, "limit", 1, MAX_BATCH)
    for field, names in (("queues", queues), ("tasks", tasks)):
        if isinstance(names, str):
            raise InvalidInput(field, "must be a list of names, not one string")
    return Wanted(worker, limit, _names(queues, "queues"), _names(tasks, "tasks"), credential)


def _names(names: Sequence[str] | None, field: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    try:
        return _known_names(tuple(names), field)
    except TypeError:  # not even hashable, so no name either
        return _checked_names(names, field)


def _checked_names(names: Sequence[str], field: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(check_name(name, field) for name in names))


_known_names = lru_cache(1_000)(_checked_names)  # a worker asks with the same ones all its life
