"""A job as a message about it is judged: may it be claimed, by whom is it held. The message itself decides nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Offer:
    job_id: str
    queue: str
    seq: int  # the job's version, the `enqueue_id` of a message
    task: str
    claimable: bool  # due, in a state that can be claimed, and its queue is not paused
    owner: str | None = None  # whose lease it is under
