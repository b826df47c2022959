"""The jobs that ran another one's spec again."""

from __future__ import annotations

from holdfast.stores.statements.queries import job_columns
from holdfast.stores.statements.words import Statement, Words


def _replays(words: Words) -> str:
    wanted = words.id()
    return f"""
        SELECT {job_columns(words)} FROM holdfast_jobs j
        WHERE j.replay_of = {wanted} ORDER BY j.id DESC LIMIT :limit"""


REPLAYS = Statement("replays.of", _replays)
