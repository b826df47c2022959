"""The table of what is measured hangs together."""

from __future__ import annotations

import pytest

from benchmarks.peers import probes
from benchmarks.peers.environments import ADAPTERS, OURS, REQUIREMENTS
from benchmarks.peers.run import DRAINS, ENQUEUES
from benchmarks.peers.variants import RESPONSIVE, VARIANTS, Variant, redis_database

REDIS_DATABASES = 16
every_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())


@every_variant
def test_every_variant_has_an_adapter_and_an_environment(variant: Variant) -> None:
    assert (ADAPTERS / f"{variant.peer}_peer.py").exists()
    assert variant.peer == OURS or variant.peer in REQUIREMENTS


@every_variant
def test_the_best_setting_is_one_that_is_tried(variant: Variant) -> None:
    assert variant.best in variant.concurrencies
    assert variant.responsive in variant.concurrencies
    assert variant.setting


@every_variant
def test_every_store_can_be_asked_what_is_done(variant: Variant) -> None:
    known = {"postgres": set(probes.POSTGRES), "sqlite": {*probes.SQLITE, "huey"}}
    assert variant.store == "redis" or variant.peer in known[variant.store]


def test_every_environment_is_of_use_to_somebody() -> None:
    assert set(REQUIREMENTS) | {OURS} == {variant.peer for variant in VARIANTS.values()}


def test_those_on_redis_have_a_database_each() -> None:
    numbers = [redis_database(variant) for variant in VARIANTS.values() if variant.store == "redis"]
    assert sorted(set(numbers)) == sorted(numbers)
    assert max(numbers) < REDIS_DATABASES


def test_latency_is_measured_near_ten_at_once() -> None:
    assert VARIANTS["pgqueuer"].responsive == RESPONSIVE


def test_who_is_held_against_whom_is_in_the_table() -> None:
    named = {name for pair in (*DRAINS, *ENQUEUES) for name in pair}
    assert {"pgqueuer", "holdfast-postgres", "huey-sqlite", "holdfast-sqlite"} <= named & set(VARIANTS)
