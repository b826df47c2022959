"""Postgres as a shared server: connections, vacuum, other people's transactions, the way notifications take."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.doctor.patient import Patient
from holdfast.domain import connections as budget
from holdfast.domain.errors import HoldfastError
from holdfast.domain.findings import Remark, info, ok, problem, warning
from holdfast.settings import mask_url
from holdfast.stores.inspection import postgres
from holdfast.wiring.sql import hearing


def connections(patient: Patient) -> Iterator[Remark]:
    server, slots = postgres.server(patient.store), postgres.slots(patient.store)
    workers = len(patient.live_workers())
    most = slots.most if slots.role_limit is None else min(slots.most, slots.role_limit)
    text = f"{slots.used} of {most} connections are in use; {workers} live workers may want {workers * budget.WORKER}"
    if slots.used >= most * patient.limits.used_connections:
        yield warning(text, "End what is idle, raise max_connections, or put pgbouncer in between (docs/pgbouncer.md).")
    elif workers * budget.WORKER > most and not server.pooled:
        yield warning(text, "Raise max_connections, run fewer and larger workers, or put pgbouncer in between.")
    else:
        yield ok(text)


def pooler(patient: Patient) -> Iterator[Remark]:
    server = postgres.server(patient.store)
    if not server.pooled:
        yield ok("the connection leads to the server itself")
        return
    yield info(
        "the connection goes through a pooler",
        "In transaction mode everything works but LISTEN; its own limits (default_pool_size, max_client_conn) count.",
    )
    if server.compiles:
        yield info(
            "the server compiles expensive plans (jit); through a pooler each claim takes two round trips to forbid it",
            f"ALTER ROLE {server.role} SET jit = off; saves them.",
        )


def vacuum(patient: Patient) -> Iterator[Remark]:
    remarks = list(_vacuum(patient))
    yield from remarks or [ok("autovacuum is on, and keeps up")]


def _vacuum(patient: Patient) -> Iterator[Remark]:
    if not postgres.server(patient.store).autovacuum:
        yield problem("autovacuum is off: the tables grow without end", "Set autovacuum = on in postgresql.conf.")
    limits = patient.limits
    for table in postgres.tables(patient.store):
        if table.vacuum_off:
            yield problem(
                f"autovacuum is switched off for {table.name}",
                f"ALTER TABLE {table.name} RESET (autovacuum_enabled);",
            )
        if table.dead > limits.dead_rows and table.dead > limits.dead_share * table.live:
            yield warning(
                f"{table.name} has {table.dead:,} dead rows beside {table.live:,} live ones: vacuum cannot keep up",
                f"VACUUM (ANALYZE) {table.name}; and see whether an old transaction or a replication slot holds it up.",
            )


def transactions(patient: Patient) -> Iterator[Remark]:
    """Whatever is open keeps dead rows from being removed, and locks besides."""
    found = postgres.open_transactions(patient.store, patient.limits.open_transaction_seconds)
    for session in found:
        idle = session.state.startswith("idle in transaction")
        what = "an idle transaction is open" if idle else "a transaction is open"
        yield warning(
            f"{what}: {session}",
            f"End it in the program that forgot it, or: SELECT pg_terminate_backend({session.pid});"
            + (" Set idle_in_transaction_session_timeout." if idle else ""),
        )
    if not found:
        yield ok(f"no transaction is older than {patient.limits.open_transaction_seconds:g} s")


def replication(patient: Patient) -> Iterator[Remark]:
    found = postgres.idle_replication_slots(patient.store)
    for name, size in found:
        yield warning(
            f"nobody reads the replication slot {name}, which keeps back {size} of log and perhaps dead rows",
            f"Start its reader, or: SELECT pg_drop_replication_slot('{name}');",
        )
    if not found:
        yield ok("no replication slot lies idle")
    waits = postgres.server(patient.store).synchronous_commit not in ("off", "local")
    yield from _standbys(postgres.standbys(patient.store), waits=waits)


def _standbys(standbys: list[tuple[str, str | None]], *, waits: bool) -> Iterator[Remark]:
    """`waits`: whether commits of this role wait for a synchronous standby. If not, the durability check says so."""
    names = ", ".join(name for name, state in standbys if state == "async")
    if any(state in ("sync", "quorum") for _name, state in standbys):
        if not waits:
            return
        others = f"; do not promote {names}, which is asynchronous" if names else ""
        yield ok(f"commits wait for a synchronous standby{others}")
    elif names:
        yield warning(
            f"every standby is asynchronous ({names}): if one is promoted after a crash, the last acknowledged enqueues"
            " are lost, and a job may run again under the same attempt",
            "Set synchronous_standby_names, or promote only after a planned shutdown of the primary.",
        )
    elif standbys:
        yield info(
            f"{len(standbys)} standbys are connected; this role may not see whether they are synchronous",
            "GRANT pg_read_all_stats TO the role; and run doctor again.",
        )


def session(patient: Patient) -> Iterator[Remark]:
    """Defaults of the role or the database that other programs may rely on and ours do not."""
    server = postgres.server(patient.store)
    remarks = list(_defaults(server))
    yield from remarks or [ok("DateStyle and transaction isolation are the usual ones")]


def _defaults(server: postgres.Server) -> Iterator[Remark]:
    if not server.date_style.startswith("ISO"):
        yield info(
            f"DateStyle is {server.date_style!r} for this role and database; Holdfast's sessions set it to ISO",
            f"If no other program needs it: ALTER ROLE {server.role} SET DateStyle = 'ISO, MDY';",
        )
    if server.isolation != "read committed":
        cost = " and, through the pooler, takes two more round trips for each statement" if server.pooled else ""
        yield info(
            f"default_transaction_isolation is {server.isolation!r} for this role and database; Holdfast begins its own"
            f" transactions as READ COMMITTED{cost}",
            f"If no other program needs it: ALTER ROLE {server.role} SET default_transaction_isolation ="
            " 'read committed'; in transactions of your own see docs/transactions.md.",
        )


def notifications(patient: Patient) -> Iterator[Remark]:
    settings = patient.settings
    assert settings is not None
    if not settings.notify:
        yield info("notifications are switched off; workers find new jobs by polling")
        return
    url = settings.listen_url or settings.database_url
    try:
        heard = str(hearing(patient.store, url, patient.limits.notification_seconds))
    except (HoldfastError, OSError) as error:
        heard = str(error)
    except Exception as error:
        # Of the driver: the store answers, so what is wrong is the way to the listener.
        heard = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    name = mask_url(url)
    if heard == "heard":
        yield ok(f"a notification of the store is heard at {name}")
    elif heard == "pooled":
        yield warning(
            f"a listener at {name} would share its session with others through the pooler: workers poll, and start new"
            f" jobs within the poll interval ({settings.poll_interval:g} s)",
            "Set HOLDFAST_LISTEN_URL to a URL that leads to the server itself, or HOLDFAST_NOTIFY=false.",
        )
    elif heard == "silent":
        yield warning(
            f"a notification of the store did not arrive at {name}; workers find new jobs by polling",
            "HOLDFAST_LISTEN_URL must lead to the same database on the same server, the primary.",
        )
    else:
        yield warning(f"nobody can listen at {name}: {heard}", "Correct HOLDFAST_LISTEN_URL; until then workers poll.")
