"""Scene two: jobs that ask an outside world which has its own ideas of how often it may be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from holdfast.cli.demo.names import SOURCES
from holdfast.cli.demo.stage import Stage
from holdfast.domain.views import SourceEvent

COINS = {
    "A-101": "1881-S Morgan Dollar MS64",
    "A-102": "1916-D Mercury Dime VG8",
    "A-103": "1921 Walking Liberty Half Dollar F12",
}


def play(stage: Stage) -> dict[str, Any]:
    voice = stage.voice
    voice.scene("2. An outside world with limits")
    stage.store.limit_queue(stage.names.valuations, 1)
    jobs = ask(stage, COINS)
    voice.say(
        f"{len(COINS)} coins come in. {len(SOURCES)} marketplaces are asked for each: {len(jobs)} jobs.",
        "Each marketplace is a source with limits (5 starts a second) that hold for all workers together.",
    )
    busy = SOURCES[0]
    stage.wait(lambda: bool(moves(stage, busy, "throttled")), f"{busy} asks for peace")
    voice.say(
        f"{busy} answers 429, Retry-After: 1. Nobody asks it before that, on whichever machine.",
        "The job waits in the queue. That is no failure: it is charged nothing.",
    )
    stage.wait(lambda: stage.ended(*jobs) and stage.idle(stage.names.valuations), "the coins are valued")
    voice.say("All coins are valued, one record each, from listings that were folded into one another:")
    voice.show(("intake", "coin", "value", "from"), [_row(stage, intake) for intake in COINS])
    return {}


def ask(stage: Stage, coins: Mapping[str, str], sources: tuple[str, ...] = SOURCES) -> list[str]:
    """One job for each coin and marketplace. Their ids."""
    from examples.price_watch.coin import Coin

    names = stage.names
    return [
        stage.enqueue(
            "collect",
            {
                "intake": names.own(intake),
                "coin": {name: _plain(value) for name, value in asdict(Coin.from_title(title)).items()},
                "marketplace": names.own(source),
            },
            source=names.own(source),
        ).id
        for intake, title in coins.items()
        for source in sources
    ]


def moves(stage: Stage, source: str, *wanted: str) -> list[SourceEvent]:
    """What the governor did with a source, in order."""
    events = stage.store.source_events(stage.names.own(source), limit=1_000).items
    return [event for event in reversed(events) if event.event in wanted]


def _row(stage: Stage, intake: str) -> tuple[str, str, str, str]:
    [worth] = [record.data for record in stage.store.records(scope=stage.names.own(intake), source="").items]
    found = stage.store.records(scope=stage.names.own(intake), limit=1_000).items
    return intake, COINS[intake], f"${worth['value_cents'] / 100:,.2f}", f"{len(found) - 1} price points"


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value  # an enum's member is more than its text
