"""Who may use which route: the one table. A route that is not in it fails `test_routes.py`.

`elsewhere` is what becomes of a token of the right scope that is limited to other queues than the one asked about:

hidden      404: what belongs to another queue is not there
refused     403: it was named, or it is for all queues
filtered    200: nothing of the other queue is in the answer
shared      200: it belongs to no queue, and is shown to whoever may look at anything
not held    200 that says no: only the credential that claimed a lease can use it
"""

from __future__ import annotations

from dataclasses import dataclass

ADMIN = frozenset({"admin"})
WORKER = frozenset({"worker", "admin"})
CLIENT = frozenset({"client", "admin"})
READER = frozenset({"client", "viewer", "admin"})
ANY_SCOPE = frozenset({"worker", "client", "viewer", "admin"})
EVERYBODY: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Access:
    scopes: frozenset[str]  # none: no token is asked for
    elsewhere: str = ""


def _for(scopes: frozenset[str], elsewhere: str, *routes: str) -> dict[str, Access]:
    return dict.fromkeys(routes, Access(scopes, elsewhere))


# Asked with a bearer token.
PROGRAMS: dict[str, Access] = {
    **_for(EVERYBODY, "", "GET /healthz", "GET /readyz", "GET /openapi.json", "GET /docs"),
    **_for(ANY_SCOPE, "refused", "GET /metrics"),
    **_for(ADMIN, "", "GET /api/v1/tokens", "POST /api/v1/tokens", "GET /api/v1/access-refusals"),
    **_for(ADMIN, "", "POST /api/v1/tokens/{name}/rotate", "POST /api/v1/tokens/{name}/revoke"),
    **_for(WORKER, "refused", "POST /internal/worker/claim", "POST /internal/worker/announce"),
    **_for(WORKER, "refused", "POST /internal/worker/logs", "POST /internal/worker/worker"),
    **_for(WORKER, "shared", "GET /internal/worker/store"),
    **_for(
        WORKER,
        "not held",
        "POST /internal/worker/heartbeat",
        "POST /internal/worker/heartbeats",
        "POST /internal/worker/complete",
        "POST /internal/worker/fail",
        "POST /internal/worker/release",
        "POST /internal/worker/reports",
        "POST /internal/worker/records",
        "POST /internal/worker/source/enter",
        "POST /internal/worker/source/leave",
        "POST /internal/worker/cache/get",
        "POST /internal/worker/cache/put",
    ),
    **_for(CLIENT, "refused", "POST /api/v1/jobs", "POST /api/v1/jobs/batch"),
    **_for(
        CLIENT,
        "hidden",
        "POST /api/v1/jobs/{job_id}/cancel",
        "POST /api/v1/jobs/{job_id}/requeue",
        "POST /api/v1/jobs/{job_id}/replay",
        "POST /api/v1/schedules/{name}/pause",
        "POST /api/v1/schedules/{name}/resume",
        "POST /api/v1/schedules/{name}/run",
    ),
    **_for(
        CLIENT,
        "refused",
        "POST /api/v1/queues/{name}/pause",
        "POST /api/v1/queues/{name}/resume",
        "PUT /api/v1/queues/{name}/limit",
        "PUT /api/v1/sources/{name}",
        "POST /api/v1/sources/{name}/pause",
        "POST /api/v1/sources/{name}/resume",
        "DELETE /api/v1/sources/{name}/cache",
        "DELETE /api/v1/records",
    ),
    **_for(
        READER,
        "hidden",
        "GET /api/v1/jobs/{job_id}",
        "GET /api/v1/jobs/{job_id}/events",
        "GET /api/v1/jobs/{job_id}/attempts",
        "GET /api/v1/jobs/{job_id}/logs",
        "GET /api/v1/jobs/{job_id}/artifacts",
        "GET /api/v1/jobs/{job_id}/replays",
    ),
    **_for(
        READER,
        "filtered",
        "GET /api/v1/jobs",
        "GET /api/v1/queues",
        "GET /api/v1/schedules",
        "GET /api/v1/workers",
        "GET /api/v1/tasks",
        "GET /api/v1/stuck",
        "GET /api/v1/stats",
        "GET /api/v1/refusals",
        "GET /api/v1/events/stream",
    ),
    **_for(READER, "refused", "GET /api/v1/records", "GET /api/v1/records/{record_id}"),
    **_for(READER, "shared", "GET /api/v1/sources", "GET /api/v1/sources/{name}", "GET /api/v1/sources/{name}/events"),
}

# Asked with the cookie of somebody who has signed in; what changes something, with the word of our own pages as well.
PAGES: dict[str, Access] = {
    **_for(EVERYBODY, "", "GET /sign-in", "POST /sign-in", "GET /welcome", "POST /welcome"),
    **_for(EVERYBODY, "", "GET /static/{digest}/{name}"),
    **_for(READER, "", "POST /sign-out"),
    **_for(
        READER,
        "filtered",
        *("GET /", "GET /jobs", "GET /queues", "GET /workers", "GET /dead", "GET /schedules", "GET /audit"),
        *("GET /live", "GET /charts/all"),
    ),
    **_for(READER, "shared", "GET /sources", "GET /source", "GET /sources/{name}", "GET /charts/source"),
    **_for(READER, "hidden", "GET /jobs/{job_id}", "GET /jobs/{job_id}/log", "GET /bulk/{run_id}"),
    **_for(READER, "refused", "GET /charts/queue", "POST /verify", "GET /verify", "POST /verify/stop"),
    **_for(CLIENT, "hidden", "POST /jobs/{job_id}/replay", "POST /jobs/{job_id}/{verb}", "POST /bulk/{run_id}/stop"),
    **_for(CLIENT, "filtered", "POST /bulk/{verb}"),
    **_for(CLIENT, "refused", "POST /queues/pause", "POST /queues/resume", "POST /queues/limit"),
    **_for(CLIENT, "refused", "POST /sources/pause", "POST /sources/resume"),
    **_for(CLIENT, "hidden", "POST /schedules/pause", "POST /schedules/resume", "POST /schedules/run"),
}
TABLE = {**PROGRAMS, **PAGES}
