"""One message of RQ: a worker for the one job that it names."""

from __future__ import annotations

import logging
from typing import Any

from holdfast.domain.errors import ConfigurationError, InvalidInput, StoreUnavailable
from holdfast.domain.events import Event, Events, RunEnded
from holdfast.domain.names import check_id
from holdfast.domain.timing import choose
from holdfast.observe.redaction import masked, redact
from holdfast.observe.sentences import sentence
from holdfast.rq.leaving import left, logger, remember_unknown_task
from holdfast.rq.signals import borrowed_signals
from holdfast.settings import Settings, read_settings
from holdfast.tasks.tracing import flush, set_up
from holdfast.worker.identity import worker_id
from holdfast.worker.one_job import OneJob
from holdfast.worker.options import WorkerOptions

FLUSH_SECONDS = 1.0


def run_one(job_id: str) -> dict[str, Any]:
    try:
        job_id = check_id(job_id, "job_id")
    except InvalidInput as error:
        return left(repr(str(job_id)[:60]), str(error))  # anybody's text, which must not steer who reads the log
    set_up("holdfast-rq", logger.warning)
    worker = OneJob(_options(read_settings()), Events(_log), job_id=job_id)
    try:
        with borrowed_signals():
            worker.run()
    except StoreUnavailable as error:
        return left(job_id, f"the store is away ({masked(str(error))})")
    finally:
        flush(FLUSH_SECONDS)  # RQ ends this process without another word
    if worker.errand.unknown is not None:
        remember_unknown_task(job_id, worker.errand.unknown.seq, worker.errand.unknown.task)
    if worker.ended is None:
        return left(job_id, worker.errand.why_not or "the worker was stopped before it began")
    return _ran(worker.ended)


def _ran(ended: RunEnded) -> dict[str, Any]:
    recorded = ended.event or f"nothing: the report was {ended.status}"
    logger.info("job %s (%s), attempt %d: %s", ended.job_id, ended.task, ended.attempt, recorded)
    return {"job_id": ended.job_id, "ran": True, "attempt": ended.attempt, "recorded": ended.event}


def _log(event: Event) -> None:
    """What went wrong; the ordinary life of a worker that lives for one job is not worth a line."""
    level, text, fields = sentence(event)
    if level in ("warning", "error") and not isinstance(event, RunEnded):
        told = ", ".join(f"{name}={_plain(value)}" for name, value in redact(None, level, fields).items())
        logger.log(logging.getLevelNamesMapping()[level.upper()], "%s: %s", text, told)


def _plain(value: object) -> str:
    """What would begin a line of its own, or steer a terminal, is shown: RQ's handlers write what they are given."""
    text = str(value)
    return text if text.isprintable() else repr(text)


def _options(settings: Settings) -> WorkerOptions:
    if settings.app is None:
        raise ConfigurationError(
            'Name the app: set HOLDFAST_APP=MODULE:APP for the rq worker, or app = "MODULE:APP" in [tool.holdfast] of'
            " pyproject.toml."
        )
    return WorkerOptions(
        app=settings.app,
        database_url=settings.database_url,
        artifacts_url=settings.artifacts_url,
        worker_id=worker_id(settings.worker_id),
        processes=1,
        async_slots=1,
        drain=True,
        fail_fast=True,
        notify=settings.notify,
        cache_url=settings.cache_url,
        cache_enabled=settings.cache_enabled,
        cache_ttl_seconds=settings.cache_ttl_seconds,
        timing=choose(settings.lease_seconds, settings.heartbeat_seconds),
        poll_seconds=settings.poll_interval,
        grace_seconds=settings.grace_seconds,
    )
