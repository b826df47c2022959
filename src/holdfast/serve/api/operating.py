"""What became of an operator's word, as an answer or a problem."""

from __future__ import annotations

from holdfast.domain.answers import Operated, OperatorAnswer
from holdfast.ports import Store
from holdfast.serve.api.access import no_job
from holdfast.serve.api.job_views import OperatedView
from holdfast.serve.problems import Refused, busy


def cancel(store: Store, job_id: str) -> OperatedView:
    return _view(store.cancel([job_id])[0], "only a pending, retryable or running job can be cancelled")


def requeue(store: Store, job_id: str) -> OperatedView:
    return _view(store.requeue([job_id])[0], "only a failed or cancelled job can be requeued")


def _view(answer: OperatorAnswer, rule: str) -> OperatedView:
    match answer.did:
        case Operated.WRONG_STATE:
            raise Refused(409, "Wrong state", f"the job is {answer.state}, and {rule}", state=str(answer.state))
        case Operated.KEY_TAKEN:
            said = "another active job has its unique key; wait until that one has ended"
            raise Refused(409, "The unique key is taken", said, state=str(answer.state))
        case Operated.NOT_FOUND:
            raise no_job(answer.job_id)
        case Operated.BUSY:
            raise busy("the job's row stayed locked by somebody; nothing was changed")
        case did:
            return OperatedView(id=answer.job_id, did=str(did), state=answer.state)
