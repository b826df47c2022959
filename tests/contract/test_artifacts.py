"""Files on record: with the outcome or not at all, and never those of an attempt that is somebody else's by now."""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import App, ArtifactMissing, InvalidInput
from holdfast.artifacts.opening import artifacts_root, open_artifacts
from holdfast.domain.answers import Status
from holdfast.domain.artifacts import BYTES, JSON, Artifact, reference
from holdfast.domain.job import Claimed
from holdfast.domain.lifecycle import State
from holdfast.domain.outcome import Outcome, Released, Succeeded
from holdfast.maintenance.collecting import PAGE, collect
from holdfast.ports import ArtifactStore
from holdfast.stores.sql_store import SqlStore
from holdfast.tasks.saving import Saves
from tests.artifacts.names import BAD_NAMES
from tests.contract.ground import ByHand, Clock
from tests.contract.steps import (
    BROKEN,
    EVERY_OUTCOME,
    claim_this,
    enqueue,
    lose_lease,
    report,
    settle,
    start,
)


@pytest.fixture
def files(store: SqlStore, tmp_path: Path) -> ArtifactStore:
    return open_artifacts(artifacts_root(str(tmp_path / "files"), store.store_id()))


@pytest.fixture
def app(database_url: str, tmp_path: Path) -> Iterator[App]:
    app = App(database_url, artifacts=tmp_path / "files")
    yield app
    app.close()


def saves(files: ArtifactStore, claimed: Claimed) -> Saves:
    return Saves(claimed.job_id, claimed.attempt, lambda: files)


def saved(claimed: Claimed, name: str = "page.html", content: bytes = b"content") -> Artifact:
    digest = hashlib.sha256(content).hexdigest()
    return Artifact(claimed.job_id, claimed.attempt, name, BYTES, len(content), digest)


def names(store: SqlStore, job_id: str) -> list[tuple[int, str]]:
    return [(artifact.attempt, artifact.name) for artifact in store.artifacts(job_id)]


def collected(store: SqlStore, files: ArtifactStore) -> int:
    """Everything that has no reason to stay, however young."""
    return sum(collect(store, files, grace_seconds=-5.0))


# the record


@pytest.mark.parametrize("outcome", EVERY_OUTCOME.values(), ids=EVERY_OUTCOME)
def test_whatever_the_outcome_the_files_of_an_attempt_are_recorded_with_it(store: SqlStore, outcome: Outcome) -> None:
    claimed = start(store)
    artifact = saved(claimed)
    assert settle(store, claimed, outcome, artifacts=(artifact, saved(claimed, "b/c"))).status is Status.APPLIED
    assert names(store, claimed.job_id) == [(1, "b/c"), (1, "page.html")]
    found = store.artifacts(claimed.job_id)[1]
    assert (found.media_type, found.bytes, found.sha256) == (BYTES, 7, artifact.sha256)
    assert found.saved_at is not None
    assert found.reference == f"{claimed.job_id}/1/page.html"


def test_reports_with_and_without_files_are_settled_together(store: SqlStore) -> None:
    jobs = [start(store) for _ in range(3)]
    outcomes: list[Outcome] = [Succeeded({"n": 1}), Succeeded(None, reference(jobs[1].job_id, 1, "page.html")), BROKEN]
    files = [(), (saved(jobs[1]),), (saved(jobs[2], "a"), saved(jobs[2], "b"))]
    reports = [report(job, outcome, artifacts=own) for job, outcome, own in zip(jobs, outcomes, files, strict=True)]
    assert [answer.status for answer in store.settle(reports)] == [Status.APPLIED] * 3
    assert [len(names(store, job.job_id)) for job in jobs] == [0, 1, 2]


def test_a_report_that_comes_again_records_nothing_twice(store: SqlStore, by_hand: ByHand) -> None:
    claimed = start(store)
    same = report(claimed, Succeeded(), artifacts=(saved(claimed),))
    assert [answer.status for answer in store.settle([same, same])] == [Status.APPLIED, Status.REPLAYED]
    assert store.settle([same])[0].status is Status.REPLAYED
    assert by_hand.count("holdfast_artifacts") == 1


def test_a_refused_report_records_nothing_and_the_zombie_has_overwritten_nothing(
    store: SqlStore, clock: Clock, files: ArtifactStore
) -> None:
    zombie = start(store, "add", max_crashes=5, max_attempts=5)
    mine = saves(files, zombie)
    early = mine.save("page.html", b"of the first")
    lose_lease(store, clock, zombie)
    successor = claim_this(store, zombie.job_id)
    theirs = saves(files, successor)
    kept = theirs.save("page.html", b"of the second")
    settle(store, successor, Succeeded(None, str(kept)), artifacts=theirs.artifacts)

    late = mine.save("page.html", b"of the zombie")
    answer = settle(store, zombie, Succeeded(None, str(late)), artifacts=mine.artifacts)
    assert answer.status is Status.REFUSED
    assert early == late != kept
    assert files.read(kept) == b"of the second"
    assert names(store, zombie.job_id) == [(2, "page.html")]
    assert store.job(zombie.job_id).result_ref == kept
    assert collected(store, files) == 1
    assert [file.path for file in files.files(zombie.job_id)] == [kept]


def test_a_file_of_somebody_else_or_with_a_bad_name_is_refused_and_nothing_is_settled(store: SqlStore) -> None:
    claimed = start(store)
    other = Artifact(claimed.job_id, 2, "a", BYTES, 0, "0" * 64)
    escaping = Artifact(claimed.job_id, 1, "../a", BYTES, 0, "0" * 64)
    for artifact in (other, escaping):
        with pytest.raises(InvalidInput, match="artifacts: "):
            settle(store, claimed, Succeeded(), artifacts=(artifact,))
    assert store.job(claimed.job_id).state is State.RUNNING
    assert names(store, claimed.job_id) == []


def test_all_processes_find_one_name_for_a_database(open_again: Callable[[], SqlStore]) -> None:
    stores = [open_again() for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda store: store.store_id(), stores))
    assert len(set(found)) == 1
    assert found[0] == open_again().store_id()
    assert len(found[0]) >= 16


# reading


def finished(store: SqlStore, content: bytes, media_type: str, files: ArtifactStore) -> str:
    """A job whose result is in a file."""
    claimed = start(store)
    artifact = replace(saved(claimed, "out", content), media_type=media_type)
    files.write(artifact.reference, content)
    settle(store, claimed, Succeeded(None, str(artifact.reference)), artifacts=(artifact,))
    return claimed.job_id


def forge(by_hand: ByHand, job_id: str, value: str) -> None:
    by_hand("UPDATE holdfast_jobs SET result_ref = :value WHERE id = :id", value=value, id=job_id)


def test_a_result_in_a_file_is_read_and_a_forged_reference_reads_nothing_else(
    store: SqlStore, files: ArtifactStore, by_hand: ByHand, app: App, tmp_path: Path
) -> None:
    job_id = finished(store, b'{"a": 1}', JSON, files)
    other = finished(store, b"theirs", BYTES, files)
    assert app.handle(job_id).result() == {"a": 1}
    assert app.handle(other).result() == b"theirs"

    (tmp_path / "secret").write_text("secret")
    (tmp_path / "files" / "secret").write_text("secret")
    forged = [
        str(tmp_path / "secret"),
        f"file://{tmp_path}/secret",
        "../secret",
        f"{job_id}/1/../../../../secret",
        f"{job_id}/../../secret",
        f"{job_id}/1/other",
        f"{other}/1/out",
        "s3://bucket/key",
        *(f"{job_id}/1/{name}" for name in BAD_NAMES if "\x00" not in name and "\ud800" not in name),
    ]
    for value in forged:
        forge(by_hand, job_id, value)
        with pytest.raises(ArtifactMissing):
            app.handle(job_id).result()
    forge(by_hand, job_id, f"{job_id}/1/out")
    assert app.handle(job_id).result() == {"a": 1}


def test_a_file_that_is_gone_or_changed_is_an_error_in_words(store: SqlStore, files: ArtifactStore, app: App) -> None:
    job_id = finished(store, b"content", BYTES, files)
    handle = app.handle(job_id)
    assert handle.read("out") == b"content"
    with handle.open("out") as file:
        assert file.read(3) == b"con"
    files.write(f"{job_id}/1/out", b"changed")
    with pytest.raises(Exception, match="not what was saved: its SHA-256 differs"):
        handle.result()
    files.delete(f"{job_id}/1/out")
    for attempt in (handle.result, lambda: handle.read("out")):
        with pytest.raises(ArtifactMissing, match=r"it is on record, so it was saved.*HOLDFAST_ARTIFACTS"):
            attempt()
    with pytest.raises(ArtifactMissing, match=r"has no artifact 'other' on record; there are: out"):
        handle.read("other")


def test_of_several_attempts_the_last_one_that_saved_it_is_meant(
    store: SqlStore, files: ArtifactStore, app: App
) -> None:
    job_id = enqueue(store)
    for content, outcome in ((b"one", Released()), (b"two", Released()), (None, Succeeded())):
        claimed = claim_this(store, job_id)
        mine = saves(files, claimed)
        if content is not None:
            mine.save("page.html", content)
        settle(store, claimed, outcome, artifacts=mine.artifacts)
    handle = app.handle(job_id)
    assert [(a.attempt, a.name) for a in handle.artifacts()] == [(1, "page.html"), (2, "page.html")]
    assert handle.read("page.html") == b"two"
    assert handle.read("page.html", attempt=1) == b"one"
    with pytest.raises(ArtifactMissing, match="of attempt 3"):
        handle.read("page.html", attempt=3)


# collecting


def test_what_is_on_record_or_running_stays_and_the_rest_is_collected(
    store: SqlStore, files: ArtifactStore, clock: Clock
) -> None:
    done, running, released = start(store), start(store), start(store)
    kept = [saves(files, done).save("kept", b"1"), saves(files, running).save("young", b"2")]
    settle(store, done, Succeeded(None, str(kept[0])), artifacts=(saved(done, "kept", b"1"),))
    settle(store, released, Released())
    garbage = [
        saves(files, released).save("unreported", b"3"),
        saves(files, done).save("unreported/too", b"4"),
        reference("01890a5d-ac96-774b-bcce-b302099a8057", 1, "of a job that never was"),
    ]
    files.write(garbage[2], b"5")
    assert collected(store, files) == 3
    left = {file.path for job_id in files.job_folders() for file in files.files(job_id)}
    assert left == set(kept)
    assert sorted(files.job_folders()) == sorted([done.job_id, running.job_id]), "empty folders are gone"

    lose_lease(store, clock, running)
    assert collected(store, files) == 1
    assert list(files.job_folders()) == [done.job_id]


def test_what_is_young_stays(store: SqlStore, files: ArtifactStore) -> None:
    claimed = start(store)
    saves(files, claimed).save("page.html", b"1")
    settle(store, claimed, Released())
    assert sum(collect(store, files)) == 0
    assert len(list(files.files(claimed.job_id))) == 1
    assert collected(store, files) == 1


def test_files_of_a_pruned_job_are_collected(store: SqlStore, files: ArtifactStore, by_hand: ByHand) -> None:
    job_id = finished(store, b"content", BYTES, files)
    assert collected(store, files) == 0
    by_hand("DELETE FROM holdfast_jobs WHERE id = :id", id=job_id)
    assert collected(store, files) == 1
    assert list(files.job_folders()) == []


def test_temporary_files_of_the_dead_are_collected_and_what_others_put_there_is_not(
    store: SqlStore, files: ArtifactStore, tmp_path: Path
) -> None:
    dead, running = start(store), start(store)
    settle(store, dead, Released())
    folders = [tmp_path / "files" / store.store_id() / claimed.job_id / "1" / "sub" for claimed in (dead, running)]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / ".saving-00ff").write_text("half")
        (folder / ".DS_Store").write_text("a person looked at it")
    elsewhere = tmp_path / "files" / store.store_id() / "notes" / "1"
    elsewhere.mkdir(parents=True)
    (elsewhere / "a").write_text("not ours")
    assert collected(store, files) == 1
    left = sorted(path.relative_to(tmp_path / "files") for path in (tmp_path / "files").rglob("*") if path.is_file())
    mine = Path(store.store_id())
    assert left == sorted(
        [
            mine / dead.job_id / "1/sub/.DS_Store",
            mine / running.job_id / "1/sub/.DS_Store",
            mine / running.job_id / "1/sub/.saving-00ff",
            mine / "notes/1/a",
        ]
    )


def test_a_database_collects_only_its_own_files(store: SqlStore, files: ArtifactStore, tmp_path: Path) -> None:
    theirs = open_artifacts(artifacts_root(str(tmp_path / "files"), "another"))
    theirs.write("01890a5d-ac96-774b-bcce-b302099a8057/1/a", b"theirs")
    claimed = start(store)
    saves(files, claimed).save("page.html", b"1")
    settle(store, claimed, Released())
    assert collected(store, files) == 1
    assert theirs.read("01890a5d-ac96-774b-bcce-b302099a8057/1/a") == b"theirs"


def test_many_folders_are_gone_through_page_by_page(store: SqlStore, files: ArtifactStore) -> None:
    jobs = [f"01890a5d-ac96-774b-bcce-{number:012d}" for number in range(PAGE + 50)]
    for job_id in jobs[:7]:
        files.write(f"{job_id}/1/a", b"")
    assert list(collect(store, files, grace_seconds=-5.0, page=3)) == [3, 3, 1]
    assert list(files.job_folders()) == []
    assert list(collect(store, files)) == []


def test_a_bucket_is_collected_alike(store: SqlStore) -> None:
    files = open_artifacts(artifacts_root("memory://jobs", store.store_id()))
    done, released = start(store), start(store)
    mine = saves(files, done)
    kept = mine.save("kept/1", {"a": 1})
    settle(store, done, Succeeded(None, str(kept)), artifacts=mine.artifacts)
    settle(store, released, Released())
    saves(files, released).save("page.html", b"3")
    assert collected(store, files) == 1
    assert [file.path for job_id in files.job_folders() for file in files.files(job_id)] == [kept]
