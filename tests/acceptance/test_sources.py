"""`holdfast sources` and what is below it, in this process."""

import re
from pathlib import Path

import pytest

from holdfast import NewJob
from holdfast.domain.outcome import Failed, JobError, Report
from holdfast.stores.cache_file import CacheFile
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import InProcess


def fail(store: SqlStore, times: int) -> None:
    for _ in range(times):
        claimed = store.claim_job("ada", store.enqueue(NewJob(task="fetch", source="shop")).id)
        assert claimed is not None
        outcome = Failed(JobError("Timeout", "no answer", retryable=False))
        assert store.settle([Report(claimed.job_id, claimed.attempt, claimed.lease_token, outcome)])[0].ok


def test_every_limit_can_be_set(here: InProcess) -> None:
    limits = ("--rate", "100/m", "--burst", "5", "--max-concurrent", "3", "--breaker-threshold", "2")
    rules = ("--breaker-pause", "90s", "--breaker-only", "Timeout, OSError", "--no-count-permanent", "--json")
    source = here("sources", "set", "shop", *limits, *rules).succeeded().document
    assert (source["rate_limit_per_minute"], source["burst"], source["max_concurrent"]) == (100, 5, 3)
    assert (source["breaker_threshold"], source["breaker_pause_seconds"]) == (2, 90)
    assert (source["breaker_only"], source["breaker_counts_permanent"]) == (["OSError", "Timeout"], False)
    back = here(
        "sources", "set", "shop", "--rate", "none", "--breaker-only", "none", "--breaker-ignores", "A", "--json"
    )
    source = back.succeeded().document
    assert (source["rate_limit_per_minute"], source["breaker_only"], source["breaker_ignores"]) == (None, None, ["A"])
    assert here("sources").succeeded().out.splitlines()[1].split()[:5] == ["shop", "ok", "-", "-", "0/3"]


def test_a_wrong_word_names_the_field_and_the_rule(here: InProcess) -> None:
    here("sources", "set", "shop", "--rate", "fast").refused("rate", "100/m", "fast")
    here("sources", "set", "shop", "--rate", "1/s", "--rate-limit-per-minute", "60").refused("rate", "choose one")
    here("sources", "set", "shop", "--rate", "0/m").refused("rate", "100/m", "'0/m'")
    here("sources", "set", "shop", "--breaker-pause", "soon").refused("breaker_pause", "30s")
    here("sources", "pause", "shop", "--for", "0").refused("for", "more than zero")
    here("sources", "pause", "shop").refused("--for")
    for command in (("resume", "my shop"), ("events", "my shop")):
        said = here("sources", *command).said_no().err
        assert "there is no source my shop; `holdfast sources set 'my shop' --rate 100/m` makes one" in said
    assert here("sources", "--json").succeeded().document == {"sources": []}


def test_health_is_one_line_a_source(here: InProcess, store: SqlStore) -> None:
    here("sources", "set", "shop", "--breaker-threshold", "2").succeeded()
    fail(store, 2)
    store.enqueue_many([NewJob(task="fetch", source="shop")] * 3)
    heading, row = here("sources").succeeded().out.splitlines()
    assert heading.split()[:5] == ["source", "state", "level", "rate", "at"]
    assert row.split()[:8] == ["shop", "breaker", "open", "-", "-", "0/-", "3", "2/2"]
    assert re.search(r"in [345] min \(by breaker\)", row), "the default is five minutes"
    assert "never" in row, "it never succeeded"
    resumed = here("sources", "resume", "shop").succeeded().out.splitlines()[1]
    assert resumed.split()[:2] == ["shop", "ok"]
    assert len(store.claim("ada", 9)) == 3


def test_a_source_is_paused_for_a_while(here: InProcess, store: SqlStore) -> None:
    assert "there is no source shop" in here("sources", "pause", "shop", "--for", "10m").said_no().err
    store.set_source("shop")
    source = here("sources", "pause", "shop", "--for", "10m", "--json").succeeded().document
    assert (source["paused_by"], source["breaker"]) == ("operator", "closed")
    assert "(by operator)" in here("sources").succeeded().out
    assert store.source("shop").paused_until is not None
    assert here("sources", "--json", "resume", "shop").succeeded().document["paused_until"] is None


def test_what_happened_is_listed_the_newest_first(here: InProcess, store: SqlStore) -> None:
    assert here("sources", "events").succeeded().out == ""
    here("sources", "set", "shop", "--breaker-threshold", "1").succeeded()
    here("sources", "set", "bank", "--burst", "2").succeeded()
    fail(store, 1)
    listed = here("sources", "events", "shop", "--json").succeeded().document
    assert [event["event"] for event in listed["events"]] == ["breaker_opened", "limits_changed"]
    assert listed["after"] is None
    first = here("sources", "events", "--limit", "1", "--json").succeeded().document
    then = here("sources", "events", "--limit", "1", "--after", first["after"], "--json").succeeded().document
    assert [first["events"][0]["source"], then["events"][0]["source"]] == ["shop", "bank"]
    lines = here("sources", "events").succeeded().out.splitlines()
    assert lines[0].split() == ["at", "source", "event", "detail"]
    assert '"code":"Timeout"' in lines[1]


def test_what_is_refused_makes_no_file(tmp_path: Path) -> None:
    here = InProcess(tmp_path, f"sqlite:///{tmp_path / 'none.db'}")
    here("sources", "set", "shop", "--burst", "0").refused("burst")
    here("sources", "set", "shop", "--rate", "0/m").refused("rate")
    here("sources", "set", "a\nb", "--rate", "1/m").refused("source")
    here("sources", "pause", "", "--for", "1m").refused("source")
    assert list(tmp_path.iterdir()) == []


def test_what_a_source_answered_is_forgotten(
    here: InProcess, store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source, key in (("shop", "k1"), ("shop", "k2"), ("shop", "k3"), ("bank", "k1")):
        store.keep_cached(source, key, 1, 3600.0)
    assert here("sources", "clear-cache", "shop", "--key", "k1").succeeded().out == "1 answer forgotten.\n"
    assert here("sources", "clear-cache", "shop", "--json").succeeded().document == {"cleared": 2}
    assert here("sources", "clear-cache", "shop").succeeded().out == "0 answers forgotten.\n"
    here("sources", "clear-cache", "shop", "--key", "").refused("key", "1 to 512")
    assert store.cached("bank", "k1") is not None

    monkeypatch.setenv("CACHE_URL", str(tmp_path / "cache.db"))
    own = CacheFile(tmp_path / "cache.db")
    own.keep_cached("bank", "k1", 1, 3600.0)
    own.close()
    assert here("sources", "clear-cache", "bank", "--json").succeeded().document == {"cleared": 1}
    assert store.cached("bank", "k1") is not None, "the file is where workers look"
