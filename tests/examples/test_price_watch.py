"""examples/price_watch: how it reads titles and prices, and the one command, typed in as its README says."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import httpx
import psutil
import pytest

import holdfast
from examples.price_watch import market_server, marketplaces
from examples.price_watch.coin import Coin, Denomination, Mintmark
from examples.price_watch.marketplaces import MARKETPLACES, TIMEOUT_SECONDS, Marketplace
from examples.price_watch.matching import strength
from examples.price_watch.valuation import Point, value
from holdfast.domain.job import Job
from holdfast.domain.lifecycle import State
from holdfast.domain.record import Record
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CONFIGURATION, InProcess
from tests.chaos.databases import assert_verified, opened
from tests.examples.shell import LIMIT_SECONDS
from tests.servers.waiting import DEADLINE_SECONDS, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "price_watch"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
COIN = Coin.from_title("1881-S Morgan Dollar MS64")
INTAKES = [f"A-{number}" for number in range(101, 109)]
AGAIN = INTAKES[6:]
RATE_PER_SECOND = 5.0
TOO_LATE = "too late"
CLOCK_TICK = 0.02  # starts: a store's clock has milliseconds


def test_a_coin_is_read_from_what_a_clerk_types() -> None:
    assert Coin(1881, Mintmark.S, Denomination.DOLLAR, "Morgan", "1881 s morgan dollar ms64") == COIN
    assert Coin.from_title(" 1881 S  MORGAN dollar, ms-64!") == COIN
    assert Coin.from_title("1921 Walking Liberty").denomination is Denomination.HALF
    for title, lacks in (("Morgan dollar", "year"), ("1914 Barber", "denomination"), ("1881 coin", "series")):
        with pytest.raises(ValueError, match=lacks):
            Coin.from_title(title)


def test_a_fuller_title_matches_better() -> None:
    titles = [
        "1881",
        "Morgan of 1881",
        "1881 Morgan $1",
        "1881 Morgan S-mint",
        "Morgan $1 1881 (S)",
        "1881-S MORGAN $1 MS64",
    ]
    matches = [strength(COIN, title) for title in titles]
    assert matches == sorted(matches)
    assert len(set(matches)) == len(matches)
    assert 0 < matches[0] < matches[-1] <= 1
    assert strength(COIN, "L@@K \u200b 1881\u2013s &amp; MORGAN\x07 dollar, $1,882.00") > 0.9


@pytest.mark.parametrize(
    "title",
    [
        "1882-S Morgan Dollar MS64", "1881-O Morgan Dollar", "1881 Morgan Carson City", "1881-S and 1882-S Morgan",
        "1881-S Peace Dollar", "1881-S half dollar", "1881-S Half Eagle", "1881-S Morgan COPY", "Lot of 1881-S Morgans",
        "Morgan Dollar", "Morgan for 1881.50", "item 18815 Morgan", "",
    ],
)  # fmt: skip
def test_what_may_be_another_coin_does_not_match(title: str) -> None:
    assert strength(COIN, title) == 0


def test_a_valuation_trusts_what_was_paid_and_leaves_out_what_is_wild_or_weak() -> None:
    sold = [Point(cents, "sold") for cents in (90_00, 100_00, 120_00)]
    asks = [Point(150_00, "ask"), Point(9_000_00, "ask"), Point(1_00, "sold")]
    weak = [Point(200_00, "sold", strength=0.4)]
    paid = value([*sold, *asks, *weak])
    assert (paid.value_cents, paid.basis, paid.points, paid.left_out) == (100_00, "sold", 3, 4)
    assert value([Point(150_00, "ask"), Point(90_00, "bid")]).value_cents == 120_00
    assert value(weak).value_cents == 200_00
    assert value([]).value_cents is None


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The example waits 2 s for an answer; a slow machine may take longer."""
    with httpx.Client(timeout=DEADLINE_SECONDS) as client:
        monkeypatch.setattr(marketplaces, "_client", lambda: client)
        yield


@pytest.mark.usefixtures("patient")
def test_the_marketplaces_answer_and_misbehave_as_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = market_server.plan(seed=1)
    with market_server.running(seed=1) as market:
        monkeypatch.setenv("PRICE_WATCH_MARKETS", market.url)
        for name, marketplace in MARKETPLACES.items():
            shown = [_shown(planned[name].get(number)) for number in range(1, 9)]
            wanted = list(itertools.takewhile(lambda answer: answer != TOO_LATE, shown))  # which takes its time
            pages: set[str] = set()
            assert [_asked(marketplace, pages) for _ in wanted] == wanted
            [text] = pages  # whenever it answers, it says the same
            page = marketplace.read(text)
            assert page.next == 2
            assert max(strength(COIN, point.title) for point in page.points) > 0.8
            for point in page.points:
                holdfast.dedupe_key(point.data(), point.external_id)  # it can be kept, whatever its title


@pytest.mark.usefixtures("patient")
def test_a_marketplace_that_is_broken_down_answers_nothing_else_until_it_is_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with market_server.running(seed=1, planned={"bourse": {4: market_server.Throttle(1)}}) as market:
        monkeypatch.setenv("PRICE_WATCH_MARKETS", market.url)
        bourse, flea = MARKETPLACES["bourse"], MARKETPLACES["flea"]
        market.break_down("bourse")
        assert [_asked(bourse, set()), _asked(bourse, set()), _asked(flea, set())] == ["500", "500", "ok"]
        market.repair("bourse")
        assert [_asked(bourse, set()), _asked(bourse, set())] == ["ok", "429, 1 s"], "and the plan goes on"


def _shown(fault: market_server.Fault | None) -> str:
    match fault:
        case market_server.Throttle():
            return "429, a date" if fault.as_date else f"429, {fault.seconds} s"
        case market_server.Break():
            return "500"
        case market_server.Dawdle(seconds) if seconds > TIMEOUT_SECONDS:
            return TOO_LATE
        case _:
            return "ok"


def _asked(marketplace: Marketplace, pages: set[str]) -> str:
    try:
        pages.add(marketplace.fetch(COIN, 1))
    except httpx.ReadTimeout:
        return "too late"
    except httpx.HTTPStatusError as error:
        if error.response.status_code != 429:
            return str(error.response.status_code)
        when = error.response.headers["Retry-After"]
        if when.isdecimal():
            return f"429, {when} s"
        parsedate_to_datetime(when)  # an error if it is neither
        return "429, a date"
    return "ok"


@dataclass(frozen=True)
class Newcomer:
    """Has a copy of the example, and a shell in which the virtual environment is active."""

    folder: Path

    def run(self, *flags: str) -> str:
        """The README's command."""
        [command] = re.findall(r"<!-- run -->\n```sh\n(python [^\n]*?)\n", README)
        copied = self.folder / "examples" / "price_watch"
        shutil.copytree(EXAMPLE, copied, ignore=shutil.ignore_patterns("__pycache__"))
        allow_time(copied)
        scratch = self.folder / "scratch"
        scratch.mkdir()
        environment = {name: value for name, value in os.environ.items() if name not in CONFIGURATION}
        environment |= {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}", "TMPDIR": str(scratch)}
        done = subprocess.run(
            ["bash", "-euc", f"{command} {shlex.join(flags)}"],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{done.stdout}\n{done.stderr}"
        assert list(scratch.iterdir()) == []
        wait_until(lambda: not _started_with(scratch), what="everything it started has ended")
        return done.stdout


def allow_time(copied: Path) -> None:
    """On a slow machine any answer may take longer than 2 s: only the marketplace that is meant to be slow is left.
    Its slow answer takes so long that a client which pauses for seconds still gives it up."""
    path = copied / "marketplaces.py"
    text = path.read_text()
    asked = 'params={**asdict(coin), "page": page})'
    assert text.count(asked) == 1
    timeout = f'TIMEOUT_SECONDS if "flea" in self.path else {DEADLINE_SECONDS}'
    path.write_text(text.replace(asked, f"{asked[:-1]}, timeout={timeout})"))
    server = copied / "market_server.py"
    text = server.read_text()
    assert text.count("Dawdle(3.0)") == 1
    server.write_text(text.replace("Dawdle(3.0)", f"Dawdle({DEADLINE_SECONDS})"))


def _started_with(scratch: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("TMPDIR") == str(scratch) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def test_one_command_collects_values_and_tells_what_the_governor_did(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'prices.db'}"
    check(url, Newcomer(tmp_path).run("--database", url))


@pytest.mark.long
def test_the_same_on_postgres_with_three_workers(tmp_path: Path, postgres_database: str) -> None:
    InProcess(tmp_path, postgres_database)("db", "upgrade").succeeded()
    check(postgres_database, Newcomer(tmp_path).run("--database", postgres_database, "--workers", "3"))


def check(url: str, told: str) -> None:
    print(told)
    [shown] = re.findall(r"<!-- shown -->\n```\n(.*?)\nWhat was found", README, re.DOTALL)
    assert told.startswith(shown), "the seed decides what the coins are worth, and the page says it"
    with opened(url) as store:
        jobs = store.jobs(task="collect", limit=1000).items
        assert Counter(job.state for job in jobs) == {State.SUCCEEDED: len(INTAKES) * len(MARKETPLACES)}
        check_records(store, told)
        check_retry_after(store, jobs, told)
        check_breaker(store, jobs, told)
        check_rates(store, jobs)
        check_cache(jobs)
        assert sum(job.result["replaced"] for job in jobs) == len(INTAKES), "one better title each"
    assert_verified(url)


def check_records(store: SqlStore, told: str) -> None:
    """Each intake has one valuation, and each listing is there once: as its best title says."""
    for intake in INTAKES:
        records = store.records(scope=intake, limit=1000).items
        assert Counter(record.source for record in records) == {"": 1, "auctionhouse": 4, "bourse": 3, "flea": 4}
        [valuation] = [record.data for record in records if record.source == ""]
        assert valuation["points"] >= 3
        shown = f"${valuation['value_cents'] / 100:,.2f}"
        assert re.search(rf"^  {intake} .*{re.escape(shown)}", told, re.MULTILINE)
        found = [record for record in records if record.source]
        assert all(record.strength > 0 for record in found)
        assert len({_without_tracking(record) for record in found}) == len(found)
        best = max((record for record in found if record.source == "auctionhouse"), key=lambda record: record.strength)
        assert best.strength == 1.0
        # "not yet catalogued" on page one, and in full on page two
        assert "catalogued" not in "".join(record.data["title"] for record in found)


def _without_tracking(record: Record) -> tuple[str, str]:
    return record.source, record.data["url"].partition("?")[0]


def check_retry_after(store: SqlStore, jobs: Sequence[Job], told: str) -> None:
    """Who was asked to wait has waited, and nobody was charged for it."""
    assert moves(store, "auctionhouse").count("throttled") == 2
    assert told.count("auctionhouse  throttled") == 2
    assert charged(store, jobs, "auctionhouse")["HTTPStatusError"] == 0
    snoozed = [event for job in jobs if job.source == "auctionhouse" for event in store.events(job.id)]
    assert [event.event for event in snoozed].count("snoozed") == 2
    [seen] = re.findall(r"^What the marketplaces saw\n.*\n((?:  .*\n)+)", told, re.MULTILINE)
    rows = [line.split() for line in seen.splitlines()]
    assert [(row[0], row[-1]) for row in rows] == [(name, "0") for name in sorted(MARKETPLACES)], "nobody was too early"


def check_breaker(store: SqlStore, jobs: Sequence[Job], told: str) -> None:
    """Opened by the third failure, again by the probe that failed, and closed by the one that did not."""
    expected = ["breaker_opened", "breaker_opened", "breaker_closed"]
    assert moves(store, "bourse") == expected
    assert re.findall(r"bourse +(breaker_\w+)", told) == expected
    assert charged(store, jobs, "bourse") == {"HTTPStatusError": 4}
    assert charged(store, jobs, "flea")["ReadTimeout"] >= 1


def charged(store: SqlStore, jobs: Sequence[Job], source: str) -> Counter[str]:
    """The errors of a source's jobs that counted as failures."""
    attempts = [attempt for job in jobs if job.source == source for attempt in store.attempts(job.id)]
    found = Counter(attempt.error["code"] for attempt in attempts if attempt.error is not None)
    assert found.total() == sum(job.failures for job in jobs if job.source == source)
    return found


def check_rates(store: SqlStore, jobs: Sequence[Job]) -> None:
    """In no stretch of time have more jobs of a source started than its rate allows, and one."""
    for source in MARKETPLACES:
        started = sorted(
            event.at
            for job in jobs
            if job.source == source
            for event in store.events(job.id)
            if event.event == "claimed"
        )
        for first, last in itertools.combinations(range(len(started)), 2):
            seconds = (started[last] - started[first]).total_seconds()
            assert last - first + 1 <= RATE_PER_SECOND * seconds + 1 + CLOCK_TICK, (source, started)


def check_cache(jobs: Sequence[Job]) -> None:
    """What is known of a coin is not asked again."""
    again = [job for job in jobs if job.payload["intake"] in AGAIN]
    assert [(job.result["pages"], job.result["fetched"]) for job in again] == [(2, 0)] * len(again)


def moves(store: SqlStore, source: str) -> list[str]:
    events = store.source_events(source, limit=1000).items
    return [event.event for event in reversed(events) if event.event != "declared"]
