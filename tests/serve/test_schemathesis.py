"""Everything that the OpenAPI describes, asked right and wrong: never a 500, and every answer as it is described.

The questions are drawn once (that is what takes long) and put to a control plane over each kind of database.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from holdfast.domain.artifacts import Artifact
from holdfast.domain.outcome import Failed, JobError, Outcome, Report, Succeeded
from tests.contract.conftest import make_empty
from tests.serve.grounds import Served, bearer, serving
from tests.servers.waiting import DEADLINE_SECONDS

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# What no random text fits. With these in place of it, a question gets past the first look.
TAME: dict[str, Any] = {
    "worker_id": "ann",
    "task": "send",
    "queue": "default",
    "lease_token": "forged",
    "source": "shop",
    **dict.fromkeys(("id", "run_after", "webhook", "traceparent", "version", "unique_key", "stream")),
}


@dataclass(frozen=True)
class Question:
    case: Case[Any]
    number: int  # of the job that it is about, if it is about one
    is_tame: bool
    has_wrong_body: bool

    def about(self, job_id: str) -> Case[Any]:
        tame = {**TAME, "job_id": job_id, "attempt_id": f"{job_id}.1"} if self.is_tame else {}
        paths, body = self.case.path_parameters, self.case.body
        paths.update({name: tame[name] for name in paths if name in tame})
        if isinstance(body, dict):
            if not self.has_wrong_body:
                body.update({name: tame[name] for name in body if name in tame})
            if isinstance(body.get("max_wait_ms"), int):  # a long poll is asked for, but nobody waits
                body["max_wait_ms"] = min(int(str(body["max_wait_ms"])), 0)
        if self.case.path.endswith("/events/stream"):
            self.case.query["seconds"] = 0
        return self.case


def draw(url: str, examples: int) -> list[Question]:
    """The same ones in every run."""
    described = schemathesis.openapi.from_url(f"{url}/openapi.json", timeout=DEADLINE_SECONDS)
    operations = [found.ok() for found in described.get_all_operations() if isinstance(found, Ok)]
    assert {operation.path for operation in operations} >= {"/api/v1/jobs", "/internal/worker/claim"}
    drawn: list[Question] = []
    for operation in operations:
        for mode in GenerationMode:
            try:
                drawn += _draw(operation.as_strategy(mode), examples)
            except Unsatisfiable:
                assert mode is GenerationMode.NEGATIVE, f"nothing right can be asked of {operation.label}"
    return drawn


def _draw(cases: st.SearchStrategy[Case[Any]], examples: int) -> list[Question]:
    drawn: list[Question] = []

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases, st.integers(0, 4), st.booleans())
    def collect(case: Case[Any], number: int, is_tame: bool) -> None:
        body = case.meta.components.get(ParameterLocation.BODY) if case.meta is not None else None
        drawn.append(Question(case, number, is_tame, body is not None and body.mode is GenerationMode.NEGATIVE))

    collect()
    return drawn


def jobs_of_all_kinds(served: Served) -> list[str]:
    """So that there is something to find: a result, an error, a file, histories."""
    ids = served.enqueue("default", 5)
    outcomes: list[Outcome] = [Succeeded({"sum": 3}), Failed(JobError("bad", "never", retryable=False))]
    for job_id, outcome in zip(ids, outcomes, strict=False):
        claimed = served.store.claim_job("ann", job_id)
        assert claimed is not None
        saved = Artifact(job_id, 1, "page.html", "text/html", 5, "0" * 64)
        report = Report(job_id, 1, claimed.lease_token, outcome, "ann", artifacts=(saved,))
        assert served.store.settle([report])[0].ok
    assert served.store.claim_job("ann", ids[2]) is not None
    served.store.cancel([ids[3]])
    return ids


def ask(served: Served, questions: list[Question]) -> None:
    ids = jobs_of_all_kinds(served)
    with requests.Session() as session:
        session.headers.update(bearer(served.tokens["admin"]))
        for question in questions:
            case = question.about(ids[question.number])
            answer = case.call(base_url=served.url, session=session, timeout=DEADLINE_SECONDS)
            more = [negative_data_rejection] if question.has_wrong_body else []
            case.validate_response(answer, checks=[*CHECKS, *more])


@pytest.fixture
def both(migrated_file: Path, migrated_database: str, tmp_path: Path) -> Iterator[list[Served]]:
    shutil.copy(migrated_file, tmp_path / "holdfast.db")
    make_empty(migrated_database)
    with ExitStack() as stack:
        urls = (f"sqlite:///{tmp_path / 'holdfast.db'}", migrated_database)
        yield [stack.enter_context(serving(url)) for url in urls]


def test_every_answer_is_as_described(both: list[Served]) -> None:
    """Each is asked for every operation, though not every question."""
    questions = draw(both[0].url, examples=3)
    for place, served in enumerate(both):
        ask(served, questions[place::2])


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_every_answer_is_as_described_however_often_one_asks(both: list[Served]) -> None:
    questions = draw(both[0].url, examples=60)
    for served in both:
        ask(served, questions)
