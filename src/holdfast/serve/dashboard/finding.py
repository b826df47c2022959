"""Which jobs somebody looks for: the filters of the address, and what is typed into the search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Query

from holdfast.domain.errors import InvalidInput
from holdfast.domain.lifecycle import State
from holdfast.domain.views import JobFilter
from holdfast.serve.auth import Identity

_ID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_HASH = re.compile(r"[0-9a-f]{6,64}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filters as they stand in the address: text, and empty where nothing is asked."""

    state: tuple[State, ...] = ()
    queue: str = ""
    task: str = ""
    source: str = ""
    spec: str = ""
    worker: str = ""
    error: str = ""

    @property
    def query(self) -> str:
        values = [(item.name, getattr(self, item.name)) for item in fields(self)]
        return urlencode([(name, value) for name, value in values if value], doseq=True)

    @property
    def narrows(self) -> bool:
        return bool(self.query)

    def filter(self, identity: Identity) -> JobFilter:
        """What is asked for, within what the token may see."""
        if self.queue:
            identity.check_queues([self.queue])
        if self.spec and not _HASH.fullmatch(self.spec):
            raise InvalidInput("spec", "must be a spec hash or how one begins: at least 6 of 0-9 and a-f")
        return JobFilter(
            states=self.state,
            queues=(self.queue,) if self.queue else identity.queues,
            task=self.task or None,
            source=self.source or None,
            spec_hash=self.spec or None,
            worker=self.worker or None,
            error_code=self.error or None,
        )


def wanted(
    state: Annotated[list[State], Query()] = [],  # noqa: B006
    queue: str = "",
    task: str = "",
    source: str = "",
    spec: str = "",
    worker: str = "",
    error: str = "",
) -> Wanted:
    return Wanted(tuple(dict.fromkeys(state)), queue, task, source, spec.strip(), worker, error)


def job_id_in(text: str) -> str | None:
    found = _ID.fullmatch(text.strip().lower())
    if found is None:
        return None
    digits = found[0].replace("-", "")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def guessed(text: str, tasks: Sequence[str], queues: Sequence[str], sources: Sequence[str]) -> Wanted:
    """What a word in the search means: a name that is known, else how a spec hash begins, else a task."""
    if text in tasks:
        return Wanted(task=text)
    if text in queues:
        return Wanted(queue=text)
    if text in sources:
        return Wanted(source=text)
    if _HASH.fullmatch(text.lower()):
        return Wanted(spec=text.lower())
    return Wanted(task=text)
