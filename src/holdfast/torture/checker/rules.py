"""What must hold of a run, besides what `holdfast verify` says of every ledger: each rule a name and a sentence."""

from __future__ import annotations

from enum import StrEnum

from holdfast.domain.history import SENTENCES as HISTORY_SENTENCES


class Rule(StrEnum):
    LOST = "lost"
    NOT_ENDED = "not_ended"
    PHANTOM = "phantom"
    UNTRUE_ANSWER = "untrue_answer"
    REFUSED_BUT_APPLIED = "refused_but_applied"
    OPERATED = "operated"
    UNKNOWN_EXECUTION = "unknown_execution"
    ATTEMPT_TWICE = "attempt_twice"
    SUCCESS_WITHOUT_EXECUTION = "success_without_execution"
    WRONGLY_CHARGED = "wrongly_charged"
    OUTCOME_REPLACED = "outcome_replaced"
    POISON = "poison"
    UNDECODABLE = "undecodable"
    OVER_LIMIT = "over_limit"
    OVER_RATE = "over_rate"
    TICK_TWICE = "tick_twice"
    TICK_MISSED = "tick_missed"
    IDLE_DISCONNECT = "idle_disconnect"
    SLOW_RECOVERY = "slow_recovery"


OWN_SENTENCES: dict[Rule, str] = {
    Rule.LOST: "Every job that a client was told is accepted has a row or a history.",
    Rule.NOT_ENDED: "Every job, but for deliveries of webhooks, has ended once the run has drained.",
    Rule.PHANTOM: (
        "Every job was asked for by a client, or is the job of a tick, the replay of a job, or the delivery of a"
        " webhook for an end that a job came to."
    ),
    Rule.UNTRUE_ANSWER: (
        "A claim, a report and a refusal that a client was told of are as the log has them: under that lease, of that"
        " attempt, once."
    ),
    Rule.REFUSED_BUT_APPLIED: "A report that was refused because its lease was lost did not end that lease.",
    Rule.OPERATED: (
        "A cancel that was answered is on record and leads to `cancelled` or `succeeded`; a requeue that was answered"
        " is on record."
    ),
    Rule.UNKNOWN_EXECUTION: "User code runs only under an attempt that was claimed.",
    Rule.ATTEMPT_TWICE: "User code begins at most once for an attempt.",
    Rule.SUCCESS_WITHOUT_EXECUTION: "A job that succeeded ran to its end in the attempt that succeeded.",
    Rule.WRONGLY_CHARGED: "No failure is charged to a job whose code never fails.",
    Rule.OUTCOME_REPLACED: "An attempt whose code ran to its end is not recorded as failed.",
    Rule.POISON: "A job that kills its worker ends as `failed` after `max_crashes` of them, with reason `worker_lost`.",
    Rule.UNDECODABLE: (
        "A job whose payload cannot be decoded ends as `failed` with `invalid_arguments`, and none of its code runs."
    ),
    Rule.OVER_LIMIT: "At no moment are more jobs of a source or a queue running than its limit allows.",
    Rule.OVER_RATE: "In any stretch of time T at most rate · T + burst jobs of a source start.",
    Rule.TICK_TWICE: "An instant of a schedule is dealt with once, and makes one job at most.",
    Rule.TICK_MISSED: "Every instant of a schedule fired, or is on record as left out.",
    Rule.IDLE_DISCONNECT: (
        "No enqueue fails while connections that were idle are closed, and nothing else is under way."
    ),
    Rule.SLOW_RECOVERY: "What a fault hit is well again within the bound.",
}

SENTENCES: dict[str, str] = {
    **{str(rule): sentence for rule, sentence in HISTORY_SENTENCES.items()},
    **{str(rule): sentence for rule, sentence in OWN_SENTENCES.items()},
}
