"""Jobs run by a stock `rq worker`: the message names a job, the lease decides who runs it.

`execute_run` is the function that RQ messages name. Nothing is imported before it is called: the process that reads
messages and forks stays small, and has neither threads nor connections of ours.
"""

from __future__ import annotations

from typing import Any


def execute_run(job_id: str) -> dict[str, Any]:
    """Win the job's lease and run it under the app that `HOLDFAST_APP` names; what came of it, never its result.

    Returns also when the job failed (Holdfast has that on record, and decides about retries) and when it is not to be
    run here and now. Raises only for what an operator has to put right: no app, an app that cannot be imported.
    """
    from holdfast.rq.leaving import left_as_before

    answer = left_as_before(job_id)
    if answer is not None:
        return answer
    from holdfast.rq.running import run_one

    return run_one(job_id)


__all__ = ["execute_run"]
