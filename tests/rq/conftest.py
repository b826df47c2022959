"""One `rq worker` for a module, on SQLite; another database for the test that asks for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.throwaway.valkey import ValkeyEndpoint
from tests.chaos.conftest import postgres_template, postgres_url
from tests.rq.station import Station
from tests.servers.waiting import DEADLINE_SECONDS
from tests.worker.site import Site, WorkerProcess

__all__ = ["postgres_template", "postgres_url"]


@pytest.fixture
def patient_offers(monkeypatch: pytest.MonkeyPatch) -> None:
    """An enqueue waits for RQ as long as that takes on a slow machine."""
    monkeypatch.setattr("holdfast.wiring.rq.OFFER_SECONDS", DEADLINE_SECONDS)


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory, valkey_server: ValkeyEndpoint) -> Iterator[Station]:
    folder = tmp_path_factory.mktemp("station")
    with Site(folder, f"sqlite:///{folder / 'jobs.db'}") as site:
        station = Station(site, valkey_server.url)
        try:
            yield station
        finally:
            station.close()


@pytest.fixture(scope="module")
def rq_worker(station: Station) -> WorkerProcess:
    """Kept small between jobs, so that each of them costs the time of its own work."""
    return station.rq_worker("-c", "holdfast.rq.preload", HOLDFAST_GRACE_SECONDS="0.2")


@pytest.fixture
def postgres_station(tmp_path: Path, postgres_url: str, valkey_server: ValkeyEndpoint) -> Iterator[Station]:
    with Site(tmp_path, postgres_url) as site:
        station = Station(site, valkey_server.url)
        try:
            yield station
        finally:
            station.close()
