"""`source.cached(key, fn)`: one key in the cache of a source, and what is or will be there.

A value is what JSON makes of it, found or not, so that a job never sees two shapes of one thing.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

from holdfast.domain.errors import InvalidInput
from holdfast.domain.looks import MOST_SOURCES
from holdfast.domain.spec import canonical_json, decode_json, encode_json
from holdfast.forks import fork_safe
from holdfast.tasks.options import Duration, positive_duration
from holdfast.tasks.results import result_to_json

_noting = fork_safe(threading.Lock())  # of all jobs: it is held for no time at all


class CacheLooks:
    """How often this attempt found something in the cache of each source, and how often not. Any thread may note."""

    __slots__ = ("_looks",)

    def __init__(self) -> None:
        self._looks: dict[str, list[int]] = {}

    def note(self, source: str, *, found: bool) -> None:
        with _noting:
            if source in self._looks or len(self._looks) < MOST_SOURCES:
                self._looks.setdefault(source, [0, 0])[0 if found else 1] += 1

    def told(self) -> dict[str, tuple[int, int]]:
        if not self._looks:  # as of nearly every job: no lock for them
            return {}
        with _noting:
            return {source: (hits, misses) for source, (hits, misses) in self._looks.items()}


class Place:
    """One key in the cache of a source, and what is or will be there."""

    def __init__(
        self, log: Callable[..., None], looks: CacheLooks, source: str, key: Any, ttl: Duration | None
    ) -> None:
        self._log = log
        self._looks = looks
        self._source = source
        self.question = {"source": source, "key": cache_key(key)}
        self._ttl = None if ttl is None else positive_duration(ttl, "ttl")
        self._is_kept = False
        self.value: Any = None

    @property
    def kept(self) -> dict[str, Any]:
        return {**self.question, "value": self.value, "ttl_seconds": self._ttl}

    def look(self, answer: Any) -> bool:
        """True: it is there. None for an answer: there is no cache now."""
        if answer is None:
            return False
        self._is_kept = answer["enabled"]
        self.value = answer["value"]
        found = bool(answer["found"])
        if self._is_kept:
            self._looks.note(self._source, found=found)
        return found

    def takes(self, value: Any) -> bool:
        """Is there anything to keep?"""
        try:
            self.value = decode_json(encode_json(result_to_json(value)))
        except (InvalidInput, ValueError, RecursionError) as error:
            self.value = value
            problem = error.rule if isinstance(error, InvalidInput) else str(error)
            self._log(f"what source {self._source} gave was not cached: it {problem}", level="warning")
            return False
        return self._is_kept


def cache_key(key: Any) -> str:
    """Of one length, whatever the key is made of: SHA-256 over its canonical JSON."""
    try:
        return hashlib.sha256(canonical_json(result_to_json(key), "key")).hexdigest()
    except InvalidInput as error:
        raise InvalidInput(f"key{error.field.removeprefix('result')}", error.rule) from error
