"""What a client of the run is told when it is started, in its environment: it holds a token."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "HOLDFAST_TORTURE_ERRAND"


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    name: str
    seed: int
    notes: str
    database_url: str
    planes: tuple[str, ...]
    token: str
    lease_seconds: float
    bulk_per_second: float
    mixed_per_second: float
    redis_url: str | None = None
    life: int = 1  # how often it was started

    def as_environment(self) -> dict[str, str]:
        return {VARIABLE: json.dumps(asdict(self))}


def errand() -> Errand:
    given = json.loads(os.environ[VARIABLE])
    return Errand(**{**given, "planes": tuple(given["planes"])})
