"""Scene five: a marketplace breaks down, and is left alone until it is well again."""

from __future__ import annotations

from typing import Any

from holdfast.cli.demo.names import SOURCES
from holdfast.cli.demo.prices import ask, moves
from holdfast.cli.demo.stage import Stage
from holdfast.domain.lifecycle import ACTIVE

BROKEN = SOURCES[1]
COINS = {
    "A-104": "1889-CC Morgan dollar VF20",
    "A-105": "1937-D Buffalo Nickel XF40",
    "A-106": "1909-S Lincoln cent F12",
    "A-107": "1885-O Morgan Dollar MS63",
}
OPENED, CLOSED = "breaker_opened", "breaker_closed"


def play(stage: Stage) -> dict[str, Any]:
    voice, market = stage.voice, stage.market
    voice.scene("5. A marketplace breaks down")
    market.break_down(BROKEN)
    jobs = ask(stage, COINS)
    voice.say(f"{BROKEN} answers 500 from now on, just as {len(COINS)} more coins come in: {len(jobs)} more jobs.")
    stage.wait(lambda: bool(moves(stage, BROKEN, OPENED)), f"the breaker of {BROKEN} opens")
    market.repair(BROKEN)
    streak = (moves(stage, BROKEN, OPENED)[0].detail or {}).get("streak")
    voice.say(
        f"{streak} failures in a row: the breaker opens. {_waiting(stage)} jobs wait for {BROKEN}, the others go on.",
        "Who waits has no worker, no lease and no slot, and burns no attempt.",
        "bold yellow",
    )
    voice.say(f"{BROKEN} is repaired. Nobody knows yet: the breaker gives it 2 s of peace.")
    stage.wait(lambda: bool(moves(stage, BROKEN, CLOSED)), f"the breaker of {BROKEN} closes")
    probed = "One job, and only one, goes to see. It succeeds: the breaker closes, and the rest may follow."
    voice.say(probed, style="green")
    stage.wait(lambda: stage.ended(*jobs), "all coins have been looked up")
    return {"breaker": _reckoning(stage, jobs)}


def _waiting(stage: Stage) -> int:
    active = stage.store.jobs(queue=stage.names.prices, states=ACTIVE, limit=1_000).items
    return sum(job.source == stage.names.own(BROKEN) for job in active)


def _reckoning(stage: Stage, jobs: list[str]) -> dict[str, Any]:
    """The marketplace's word against the engine's."""
    requests = stage.market.requests
    asked = sum(request.marketplace == BROKEN and request.answer == "Break" for request in requests)
    lookups = [stage.store.job(job_id) for job_id in jobs]
    charged = sum(job.failures for job in lookups if job.source == stage.names.own(BROKEN))
    stage.expect(asked == charged, f"{BROKEN} failed {asked} times, which should have been charged as often: {charged}")
    stage.voice.say(
        f"All {len(jobs)} lookups have succeeded. {BROKEN} was asked {asked} times while it was down, and no more."
    )
    told = [event.event for event in moves(stage, BROKEN, OPENED, CLOSED)]
    stage.expect(told[-1:] == [CLOSED], f"the breaker should have closed in the end, it went {told}")
    return {"source": BROKEN, "failures": asked, "moves": told}
