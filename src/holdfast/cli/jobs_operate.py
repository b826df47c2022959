"""`holdfast jobs cancel ID…` and `holdfast jobs requeue ID…`"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from holdfast.cli import output
from holdfast.cli.session import Json, Session, begin, opened
from holdfast.domain.answers import Operated, OperatorAnswer

Ids = Annotated[list[str], typer.Argument(metavar="ID…")]

_SENTENCES = {
    Operated.CANCELLED: "cancelled",
    Operated.CANCEL_REQUESTED: "asked to stop; its worker learns of it with the next heartbeat",
    Operated.REQUEUED: "pending again",
    Operated.KEY_TAKEN: "refused: another active job has its unique key",
    Operated.NOT_FOUND: "there is no such job",
    Operated.BUSY: "refused: the row stayed locked by somebody; try again",
}


def cancel(context: typer.Context, job_ids: Ids, json: Json = False) -> None:
    """Cancel jobs; a running one is asked to stop. Exit code 1 when one was refused."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        answers = store.cancel(job_ids)
    _answer(session, answers, "only a pending, retryable or running job can be cancelled")


def requeue(context: typer.Context, job_ids: Ids, json: Json = False) -> None:
    """Make failed or cancelled jobs pending again, with fresh budgets. Exit code 1 when one was refused."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        answers = store.requeue(job_ids)
    _answer(session, answers, "only a failed or cancelled job can be requeued")


def _answer(session: Session, answers: Sequence[OperatorAnswer], rule: str) -> None:
    if session.json:
        output.document({"jobs": [{"id": a.job_id, "ok": a.ok, "did": a.did, "state": a.state} for a in answers]})
    else:
        for answer in answers:
            output.line(f"{answer.job_id}  {_sentence(answer, rule)}")
    if not all(answer.ok for answer in answers):
        raise typer.Exit(1)


def _sentence(answer: OperatorAnswer, rule: str) -> str:
    if answer.did is Operated.WRONG_STATE:
        return f"refused: it is {answer.state}, and {rule}"
    return _SENTENCES[answer.did]
