"""The shared test vectors of run identity, for every way in."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.domain.job import NewJob

FILE = Path(__file__).with_name("spec_vectors.json")


@dataclass(frozen=True)
class Vector:
    name: str
    task: str
    version: str | None
    payload: str  # JSON text
    canonical: str
    spec_hash: str

    @property
    def value(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.payload)
        return value

    def new_job(self, **options: Any) -> NewJob:
        return NewJob(task=self.task, version=self.version, payload=self.value, **options)

    def body(self, **options: Any) -> bytes:
        """What a client sends: the payload's text as it is."""
        rest = json.dumps({"task": self.task, "version": self.version, **options})
        return f'{rest[:-1]}, "payload": {self.payload}}}'.encode()


@dataclass(frozen=True)
class Refused:
    name: str
    payload: str
    field: str
    rule: str


_CONTENT = json.loads(FILE.read_text(encoding="ascii"))
VECTORS = [Vector(**vector) for vector in _CONTENT["vectors"]]
REFUSED = [Refused(**refused) for refused in _CONTENT["refused"]]
HASHES = [vector.spec_hash for vector in VECTORS]
