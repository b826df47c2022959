"""Collect files that nobody can ever read: saved by attempts whose report was refused or never came, or by jobs that
have been pruned.

The files are listed first and the store is asked afterwards. What it calls neither running nor on record then can never
get on record: an attempt's files are recorded in the transaction that ends it. The hour of grace is on top of that, for
an attempt that has lost its lease and still reads what it wrote. It is counted by the clock of whoever keeps the files,
because that is where their times come from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.domain.artifacts import TEMPORARY, LiveArtifacts, parse_reference
from holdfast.domain.errors import InvalidInput
from holdfast.domain.names import check_id
from holdfast.maintenance.chores import Chore

if TYPE_CHECKING:
    from holdfast.ports import ArtifactRecordStore, ArtifactStore, StoredFile

PERIOD_SECONDS = 3600.0
GRACE_SECONDS = 3600.0
PAGE = 200  # job folders at once

_TEMPORARY = re.compile(rf"[^/]+/\d+/(?:.*/)?{re.escape(TEMPORARY)}[0-9a-f]+")


def artifact_chore(store: ArtifactRecordStore, files: Callable[[], ArtifactStore]) -> Chore:
    """`files` is asked when the chore's turn comes: to open a bucket takes libraries and memory."""
    return Chore("artifacts", PERIOD_SECONDS, lambda: collect(store, files()))


def collect(
    store: ArtifactRecordStore, files: ArtifactStore, *, grace_seconds: float = GRACE_SECONDS, page: int = PAGE
) -> Iterator[int]:
    """How many files were deleted, page by page."""
    folders = (name for name in files.job_folders() if _is_job(name))
    before: float | None = None
    while names := list(islice(folders, page)):
        if before is None:  # not asked where there is nothing: it takes writing a file
            before = files.now() - grace_seconds
        yield _collect_page(store, files, names, before)


def _collect_page(store: ArtifactRecordStore, files: ArtifactStore, names: list[str], before: float) -> int:
    stored = {name: list(files.files(name)) for name in names}
    live = store.live_artifacts(names)
    deleted = 0
    for name, found in stored.items():
        gone = [file for file in found if file.modified < before and _is_nobodys(name, file, live)]
        for file in gone:
            files.delete(file.path)
        if len(gone) == len(found) and not any(job_id == name for job_id, _attempt in live.running):
            files.remove_empty(name)
        deleted += len(gone)
    return deleted


def _is_job(name: str) -> bool:
    try:
        return check_id(name) == name
    except InvalidInput:
        return False


def _is_nobodys(job_id: str, file: StoredFile, live: LiveArtifacts) -> bool:
    """Only what an attempt of ours can have written: whatever else somebody put there is left alone."""
    if _TEMPORARY.fullmatch(file.path):
        attempt = int(file.path.split("/")[1])
    else:
        try:
            _, attempt, _ = parse_reference(file.path)
        except InvalidInput:
            return False
    return not live.needs(job_id, attempt, file.path)
