"""How many runners of which kind a worker has, and what they find in their environment."""

from __future__ import annotations

from holdfast.runners.frames import ARTIFACTS_FLAG, CONTROL_PLANE, DATABASE_FLAG, OVER_HTTP, TOKEN, TRACED, WORKER
from holdfast.runners.pool import PoolSize
from holdfast.worker.options import WorkerOptions


def pool_size(options: WorkerOptions, *, traced: bool) -> PoolSize:
    flags = {DATABASE_FLAG: options.database_flag, ARTIFACTS_FLAG: options.artifacts_flag}
    flags |= {WORKER: options.worker_id, TRACED: "1" if traced else None}
    environment = {name: flag for name, flag in flags.items() if flag}
    if options.control_plane is not None:
        environment |= {CONTROL_PLANE: options.control_plane, TOKEN: options.token or "", OVER_HTTP: "1"}
    return PoolSize(
        options.app,
        options.processes,
        options.slots,
        options.async_slots,
        options.term_grace_seconds,
        options.recycle_jobs,
        options.recycle_memory,
        options.max_memory,
        environment,
    )
