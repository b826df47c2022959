"""Two neighbouring releases over one database: worker, control plane, producer and HTTP worker of each, before, during
and after the upgrade, and back again. `this` against `next` holds for every migration to come."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.stores import upgrade
from tests.chaos.databases import query
from tests.migration.databases import contents, execute, open_engine
from tests.migration.releases import GUARDS, Deployment, Release, next_release, released, this_release

FIRST_RELEASE = "004dfe1"  # stores no number of its guards, and knows schema 0008
THIS = this_release()


@pytest.fixture(scope="module")
def following(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return next_release(tmp_path_factory.mktemp("next"))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Release:
    found = released(FIRST_RELEASE, tmp_path_factory.mktemp("first"))
    if found is None:
        pytest.skip(f"the history of this clone does not have {FIRST_RELEASE}")
    return found


@pytest.fixture
def deployment(tmp_path: Path, database_url: str) -> Iterator[Deployment]:
    with Deployment(tmp_path, database_url) as deployment:
        yield deployment


def starts_on_this_schema() -> bool:
    """Whether the first release does: it refuses every schema but its own."""
    return upgrade.head() == "0008"


def guards_are(deployment: Deployment, release: str) -> bool:
    [(ours, theirs)] = GUARDS.items()
    found = "SELECT prosrc FROM pg_proc" if deployment.is_postgres else "SELECT sql FROM sqlite_master"
    text = repr(query(deployment.url, found))
    return (ours in text, theirs in text) == (release == "this", release == "next")


def start_all(deployment: Deployment, release: Release, control_plane: str) -> None:
    deployment.worker(release)
    deployment.http_worker(release, control_plane)
    deployment.produce(release, control_plane)


def prepare(deployment: Deployment, old: Release) -> None:
    deployment.command(old, "db", "upgrade").succeeded()
    deployment.create_token(old)


@pytest.mark.parametrize("database_url", ["postgresql", pytest.param("sqlite", marks=pytest.mark.long)], indirect=True)
def test_both_releases_start_after_the_upgrade(deployment: Deployment, following: Release) -> None:
    prepare(deployment, THIS)
    deployment.worker(THIS)
    deployment.worker(following)  # waits for the upgrade; on SQLite it upgrades the file itself
    deployment.produce(THIS)
    with deployment.working(20):
        deployment.command(following, "db", "upgrade").succeeded()
    old, new = deployment.serve(THIS), deployment.serve(following)
    deployment.wait_until_ready(old, new)
    start_all(deployment, THIS, new)
    deployment.http_worker(following, old)
    deployment.produce(following, old)
    deployment.assert_all_work()
    assert "Nothing was changed" in deployment.command(THIS, "db", "upgrade").succeeded().out
    assert guards_are(deployment, "next")


@pytest.mark.parametrize("database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True)
def test_upgrade_of_the_first_release_changes_nothing(deployment: Deployment, first: Release) -> None:
    prepare(deployment, first)
    deployment.command(THIS, "db", "upgrade").succeeded()
    engine = open_engine(deployment.url)
    before = contents(engine)
    done = deployment.command(first, "db", "upgrade")
    assert done.code == (0 if starts_on_this_schema() else 2), done.err
    assert contents(engine) == before
    upgrade.check(engine)
    assert execute(engine, "SELECT count(*) FROM holdfast_jobs") == [(0,)]
    engine.dispose()


def go_through_an_upgrade(deployment: Deployment, old: Release, new: Release, *, old_starts: bool) -> None:
    prepare(deployment, old)
    old_plane = deployment.serve(old)
    deployment.wait_until_ready(old_plane)
    start_all(deployment, old, old_plane)
    deployment.assert_all_work()  # before
    with deployment.working(200):  # during
        deployment.command(new, "db", "upgrade").succeeded()
    new_plane = deployment.serve(new)
    deployment.wait_until_ready(new_plane)
    start_all(deployment, new, new_plane)
    start_all(deployment, new, old_plane)
    if old_starts:
        deployment.wait_until_ready(again := deployment.serve(old))
        start_all(deployment, old, new_plane)
        deployment.http_worker(new, again)
    deployment.assert_all_work()  # after
    if old_starts:
        deployment.stop(new)
        deployment.wait_until_ready(deployment.serve(old, port=int(new_plane.rpartition(":")[2])))
        start_all(deployment, old, new_plane)
        deployment.assert_all_work()  # rolled back
    deployment.command(new, "verify").succeeded()


@pytest.mark.long
def test_this_release_through_the_next_and_back(deployment: Deployment, following: Release) -> None:
    go_through_an_upgrade(deployment, THIS, following, old_starts=True)


@pytest.mark.long
def test_the_first_release_through_this_and_back(deployment: Deployment, first: Release) -> None:
    go_through_an_upgrade(deployment, first, THIS, old_starts=starts_on_this_schema())
