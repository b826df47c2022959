"""An app: its tasks, and the store that their jobs live in.

Where the store is: what flags say (`replace_store`), else `App(store)`, else the settings. It is opened at the first
use, so that importing a module of tasks needs no database.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from holdfast.domain.artifacts import JSON
from holdfast.domain.errors import ConfigurationError, InvalidInput
from holdfast.domain.job import Enqueued, Job
from holdfast.domain.names import check_id, check_name
from holdfast.domain.sources import SourceDeclaration, check_declaration
from holdfast.forks import after_fork, fork_safe, postponed
from holdfast.settings import CONTROL_PLANES, Settings, artifacts_location, read_settings
from holdfast.tasks.group import Registry
from holdfast.tasks.handle import Handle
from holdfast.tasks.home import AppStore
from holdfast.tasks.offering import OfferingStore
from holdfast.tasks.options import Duration, positive_duration
from holdfast.tasks.reading import decoded, read_artifact, result_artifact
from holdfast.tasks.records import RecordBook

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from holdfast.domain.manifest import TaskInfo
    from holdfast.domain.schedule import Declaration
    from holdfast.domain.views import SourceView
    from holdfast.ports import ArtifactStore
    from holdfast.tasks.scheduled import Scheduled
    from holdfast.tasks.task import AnyTask


class App(Registry):
    """`App()` follows the settings; `App("postgresql://…")` or `App(engine)` names the store, `App("https://…",
    token=…)` a control plane, and `App(artifacts="s3://…")` where the files that jobs save are kept."""

    def __init__(
        self,
        store: str | Engine | None = None,
        *,
        lease: Duration | None = None,
        name: str = "app",
        artifacts: str | os.PathLike[str] | None = None,
        token: str | None = None,
    ) -> None:
        super().__init__()
        self._declared_sources: dict[str, SourceDeclaration] = {}
        self.name = check_name(name, "name")
        self._lease = None if lease is None else positive_duration(lease, "lease")
        self._location = _checked_location(store)
        self._token = token
        self._opened: AppStore | None = None
        self._borrowed = False
        self._files_location = _checked_files(artifacts)
        self._files: ArtifactStore | None = None
        self._read: Settings | None = None
        self._lock = fork_safe(threading.Lock())
        after_fork(self._after_fork)

    # tasks

    @property
    def tasks(self) -> Mapping[str, AnyTask]:
        return MappingProxyType(self._tasks)

    def manifest(self) -> list[TaskInfo]:
        """What a runner tells its supervisor."""
        return [task.info() for task in self._tasks.values()]

    @property
    def schedules(self) -> Mapping[str, Scheduled]:
        return MappingProxyType(self._scheduled)

    def declarations(self) -> list[Declaration]:
        """The schedules of this app as a worker announces them."""
        return [scheduled.declaration(name) for name, scheduled in self._scheduled.items()]

    def _register(self, task: AnyTask, name: str, options: Mapping[str, Any]) -> None:
        super()._register(task, name, options)
        task.definition.belongs_to(self)

    # sources

    def source(self, name: str, **limits: Any) -> None:
        """Declare an outside system and its limits: `app.source("ebay", rate="100/m", max_concurrent=4)`. Workers say
        so when they start; what an operator has changed since stays, until the code says something new."""
        declared = check_declaration(SourceDeclaration(name, limits))
        if self._declared_sources.setdefault(name, declared) != declared:
            raise ConfigurationError(f"source {name} is declared twice, with other limits; declare it in one place")

    def declared_sources(self) -> list[SourceDeclaration]:
        return list(self._declared_sources.values())

    def set_source(self, name: str, **limits: Any) -> SourceView:
        """Change limits while workers run; those that are not named stay as they are."""
        return self.store.set_source(name, **limits)

    def resume_source(self, name: str) -> SourceView:
        """End its pause, whoever paused it, and close its breaker."""
        return self.store.resume_source(name)

    def sources(self) -> list[SourceView]:
        """How they are: limits, level, failures, pauses."""
        return self.store.sources()

    # the store

    @property
    def store(self) -> AppStore:
        opened = self._opened
        return opened if opened is not None else self._open()

    @property
    def lease_seconds(self) -> float:
        """For jobs whose task names no lease of its own."""
        return self._settings.lease_seconds if self._lease is None else self._lease

    @property
    def location(self) -> str | Engine:
        """Where the store is, opened or not: a control plane counts before a database."""
        named: str | Engine | None = self._location
        return named or self._settings.control_plane or self._settings.database_url

    @property
    def named_store(self) -> str | None:
        """The URL of the store, if it was named here rather than in the settings."""
        if self._location is None or isinstance(self._location, str):
            return self._location
        return str(self._location.url.render_as_string(hide_password=False))

    def replace_store(self, store: str | Engine) -> None:
        """Use another store from now on, as a flag does."""
        self._switch(_checked_location(store))

    @contextmanager
    def borrowed_store(
        self, store: str | Engine, artifacts: str | os.PathLike[str] | None = None
    ) -> Iterator[AppStore]:
        """Use another store inside the block, as a test does; the app's own one stays open meanwhile."""
        location, files_location = _checked_location(store), _checked_files(artifacts)
        with self._lock:
            own, own_location, own_files = self._opened, self._location, self._files_location
            self._opened, self._location, self._files = None, location, None
            self._files_location = files_location or own_files
            was_borrowed, self._borrowed = self._borrowed, True
        try:
            yield self.store
        finally:
            self._files_location, self._borrowed = own_files, was_borrowed
            self._switch(own_location, own)

    def close(self) -> None:
        """Close the store's connections; the next use opens them again."""
        self._switch(self._location)

    def _switch(self, location: str | Engine | None, opened: AppStore | None = None) -> None:
        with self._lock:
            previous, self._opened, self._location = self._opened, opened, location
            self._files = None
        if previous is not None:
            previous.close()

    def _open(self) -> AppStore:
        with postponed(), self._lock:  # it imports modules
            opened = self._opened
            if opened is None:
                location = self.location
                over_http = isinstance(location, str) and location.startswith(CONTROL_PLANES)
                opened = self._opened = self._over_http(str(location)) if over_http else self._on_sql(location)
            return opened

    def _on_sql(self, location: str | Engine) -> AppStore:
        from holdfast.wiring.sql import open_store

        opened = open_store(location)
        # A borrowed one is nobody's but its borrower's: nobody else is told of its jobs.
        return opened if self._borrowed else self._offering(self._published(opened))

    def _published(self, store: Any) -> AppStore:
        """The store, which with a Redis also publishes its jobs in streams."""
        if self._settings.redis_url is None:
            return cast(AppStore, store)
        from holdfast.wiring.redis import published

        return published(store, self._settings)

    def _over_http(self, url: str) -> AppStore:
        from holdfast.wiring.http import open_control_plane

        token = self._settings.token if self._token is None else self._token
        return cast(AppStore, open_control_plane(url, token))  # it refuses what has no form over HTTP

    def _offering(self, store: AppStore) -> AppStore:
        """The store, which with RQ also tells its queues."""
        settings = self._settings
        if settings.rq_url is None:
            return store
        from holdfast.wiring.rq import open_offers

        offer, close = open_offers(settings.rq_url, settings.rq_serializer)
        return cast(AppStore, OfferingStore(store, offer, close))

    @property
    def settings(self) -> Settings:
        return self._settings

    @property
    def _settings(self) -> Settings:
        if self._read is None:
            self._read = read_settings()
        return self._read

    # files

    @property
    def artifact_store(self) -> ArtifactStore:
        """Where this store's jobs keep their files."""
        files = self._files
        if files is None:
            from holdfast.wiring.sql import artifacts_root, open_artifacts

            location = self._files_location or self._settings.artifacts_url
            files = self._files = open_artifacts(artifacts_root(location, self.store.store_id()))
        return files

    def _after_fork(self) -> None:
        """The clients of object stores are the parent's. The store itself leaves its connections behind."""
        self._files = None

    @property
    def named_artifacts(self) -> str | None:
        """Where files are kept, if it was named here rather than in the settings."""
        return self._files_location

    def replace_artifacts(self, artifacts: str | os.PathLike[str]) -> None:
        """Keep files elsewhere from now on, as a flag does."""
        self._files_location, self._files = _checked_files(artifacts), None

    # jobs

    def handle(self, job_id: str) -> Handle[Any]:
        """The handle of a job that was enqueued earlier or elsewhere."""
        job = self.store.job(check_id(job_id, "job_id"))
        return Handle(self, Enqueued(job.id, False, job.state))

    def result_of(self, job: Job) -> Any:
        """A job's result as its task's return annotation has it; bytes and text that were saved come as they are."""
        value = job.result
        if value is None and job.result_ref is not None:
            artifact = result_artifact(job, self.store.artifacts(job.id))
            value = decoded(artifact, read_artifact(self.artifact_store, artifact))
            if artifact.media_type != JSON:
                return value
        task = self._tasks.get(job.task)
        return value if task is None else task.arguments.load_result(value)

    @property
    def records(self) -> RecordBook:
        """What jobs found and kept, and writing to it outside any job."""
        return RecordBook(lambda: self.store)

    def work(self, *, until_empty: bool = True, queues: Sequence[str] | None = None, limit: int | None = None) -> int:
        """Run jobs in this very process, for notebooks and tests; how many it ran."""
        from holdfast.worker.inline import work

        return work(self, until_empty=until_empty, queues=queues, limit=limit)

    def __repr__(self) -> str:
        return f"<App {self.name}, {len(self._tasks)} tasks>"


def _checked_files(artifacts: Any) -> str | None:
    return None if artifacts is None else artifacts_location(artifacts, "artifacts", Path.cwd())


def _checked_location(store: Any) -> Any:
    if store is None or isinstance(store, str) or hasattr(store, "dialect"):
        return store
    raise InvalidInput(
        "store", f"must be the URL of a database or a control plane, or a SQLAlchemy engine, got {type(store).__name__}"
    )
