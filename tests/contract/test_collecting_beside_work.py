"""Files are listed first and the store is asked afterwards: an attempt that begins in between loses nothing."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from holdfast.artifacts.opening import artifacts_root, open_artifacts
from holdfast.domain.outcome import Released
from holdfast.maintenance.collecting import collect
from holdfast.ports import ArtifactStore, StoredFile
from holdfast.stores.sql_store import SqlStore
from holdfast.tasks.saving import Saves
from tests.contract.steps import claim_this, settle_well, start


class Watched:
    """The files, and somebody who is at work just before they are listed."""

    def __init__(self, files: ArtifactStore, work: Callable[[], None]) -> None:
        self._files = files
        self._work = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def files(self, job_id: str) -> Iterator[StoredFile]:
        self._work()
        return self._files.files(job_id)


def test_what_an_attempt_saves_while_files_are_collected_stays(store: SqlStore, tmp_path: Path) -> None:
    files = open_artifacts(artifacts_root(str(tmp_path / "files"), store.store_id()))
    first = start(store)
    Saves(first.job_id, 1, lambda: files).save("of an attempt that is over", b"1")
    settle_well(store, first, Released())

    def second_attempt() -> None:
        claim_this(store, first.job_id)
        Saves(first.job_id, 2, lambda: files).save("of the next one", b"2")

    watched: Any = Watched(files, second_attempt)
    assert sum(collect(store, watched, grace_seconds=-5.0)) == 1
    assert [file.path for file in files.files(first.job_id)] == [f"{first.job_id}/2/of the next one"]
