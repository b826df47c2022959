"""What may be offered in messages, and what has become of what was offered. Reads only."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.domain.names import check_id, check_integer, check_name
from holdfast.domain.offers import Offer
from holdfast.stores.database import CursorTransaction, Database
from holdfast.stores.statements import offers as sql
from holdfast.stores.statements.words import POSTGRES
from holdfast.stores.verbs.admitting import walk_parameters
from holdfast.stores.verbs.claiming import MAX_BATCH
from holdfast.stores.verbs.looking import Looking
from holdfast.stores.verbs.sqlite_walk import walk


def offers(database: Database, queue: str, limit: int) -> list[Offer]:
    """The first so many jobs of a queue that could be claimed now, in that order."""
    limit = check_integer(limit, "limit", 1, MAX_BATCH)
    looking = Looking(limit, (check_name(queue, "queue"),), None, lanes=limit)
    if database.dialect == POSTGRES:
        with database.reading() as transaction:
            return [Offer(*row) for row in transaction.rows(sql.HEADS, walk_parameters(looking))]
    with database.reading() as transaction:
        ids = [job.id for job in walk(transaction, looking, ungoverned=True)]
        found = _standing(transaction, ids)
    return [found[job_id] for job_id in ids if job_id in found]


def offers_of(database: Database, job_ids: Sequence[str]) -> dict[str, Offer]:
    """How these jobs stand; one that there is not is left out."""
    ids = [check_id(job_id, "job_id") for job_id in job_ids]
    if not ids:
        return {}
    with database.reading() as transaction:
        return _standing(transaction, ids)


def offered_queues(database: Database) -> list[str]:
    with database.reading() as transaction:
        return [name for (name,) in transaction.rows(sql.QUEUES)]


def _standing(transaction: CursorTransaction, ids: Sequence[str]) -> dict[str, Offer]:
    found = transaction.rows(sql.STANDING, {"ids": json.dumps(ids)})
    return {row[0]: Offer(row[0], row[1], row[2], row[3], bool(row[4]), row[5]) for row in found}
