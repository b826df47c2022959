"""`holdfast schedules`, and `show`, `add`, `set`, `pause`, `resume`, `reset`, `remove` and `run` below it"""

from __future__ import annotations

import json as json_text
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.ages import age
from holdfast.cli.enqueue import print_enqueued, read_payload
from holdfast.cli.session import Json, Session, begin, opened
from holdfast.domain import durations
from holdfast.domain.cron import zone_of
from holdfast.domain.errors import InvalidInput
from holdfast.domain.jsonable import iso
from holdfast.domain.schedule import DEFAULT_GRACE_SECONDS, Declaration, Misfire, Schedule, Tick

if TYPE_CHECKING:
    from holdfast.stores.sql_store import SqlStore

SHOWN_INSTANTS = 5
SHOWN_TICKS = 10

Name = Annotated[str, typer.Argument(metavar="NAME")]
CronOption = Annotated[
    str | None, typer.Option("--cron", metavar="EXPRESSION", help="Five fields, as in '0 9 * * mon-fri'.")
]
EveryOption = Annotated[str | None, typer.Option(metavar="10m", help="Instead: a steady interval.")]
TimezoneOption = Annotated[str | None, typer.Option(metavar="ZONE", help="Whose clocks: Europe/Berlin. Default: UTC.")]
PayloadOption = Annotated[
    str | None, typer.Option(metavar="JSON", help="The parameters of its jobs; - reads them from standard input.")
]
QueueOption = Annotated[str | None, typer.Option(metavar="Q")]
PriorityOption = Annotated[int | None, typer.Option(metavar="N", help="From -100 to 100, higher first.")]
MisfireOption = Annotated[
    str | None, typer.Option(metavar="skip|once|all", help="What becomes of instants that nobody was there for.")
]
LimitOption = Annotated[int | None, typer.Option(metavar="N", help="With all: how many of them, the newest first.")]
GraceOption = Annotated[str | None, typer.Option(metavar="60s", help="So late is still on time.")]
TickOption = Annotated[
    str | None, typer.Option(metavar="PARAMETER", help="The parameter that is given the planned instant; '' for none.")
]


def list_schedules(context: typer.Context, json: Json = False) -> None:
    session = begin(context, json)
    if context.invoked_subcommand is not None:
        context.obj = session  # `schedules --json pause NAME`
        return
    with opened(session.settings()) as store:
        found, unreadable = store.schedules(), store.unreadable_schedules()
    if session.json:
        output.document({"schedules": found, "unreadable": unreadable})
        return
    if found:
        _print(found)
    elif not unreadable:
        output.remark("There are no schedules.")
    for failure in unreadable:
        output.error(failure.message)


def show(context: typer.Context, name: Name, json: Json = False) -> None:
    """One schedule: its next instants and its last ticks."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        schedule = store.schedule(name)
        ticks = store.ticks(name, SHOWN_TICKS)
    upcoming = _upcoming(schedule)
    if session.json:
        output.document({"schedule": schedule, "upcoming": upcoming, "ticks": ticks})
        return
    _print_facts(schedule)
    output.line("")
    _print_upcoming(schedule, upcoming)
    if ticks:
        output.line("")
        _print_ticks(ticks)


def add(
    context: typer.Context,
    name: Name,
    task: Annotated[str, typer.Option(metavar="TASK", help="The task's name; it need not be importable here.")],
    cron: CronOption = None,
    every: EveryOption = None,
    timezone: TimezoneOption = None,
    payload: PayloadOption = None,
    queue: QueueOption = None,
    priority: PriorityOption = None,
    misfire: MisfireOption = None,
    misfire_limit: LimitOption = None,
    misfire_grace: GraceOption = None,
    tick: TickOption = None,
    json: Json = False,
) -> None:
    """Make a schedule that no code declares. What is not given is as a worker has announced the task."""
    wanted = Declaration(
        name=name,
        task=task,
        job=_job(payload, queue, priority),
        cron=cron,
        every_seconds=None if every is None else durations.seconds(every, "every"),
        timezone=timezone or "UTC",
        misfire=misfire or Misfire.ONCE,
        misfire_limit=misfire_limit,
        misfire_grace_seconds=durations.seconds(
            DEFAULT_GRACE_SECONDS if misfire_grace is None else misfire_grace, "misfire_grace"
        ),
        tick_argument=tick or None,
    )
    _change(begin(context, json), lambda store: store.add_schedule(wanted), create=True)


def set_schedule(
    context: typer.Context,
    name: Name,
    cron: CronOption = None,
    every: EveryOption = None,
    timezone: TimezoneOption = None,
    payload: PayloadOption = None,
    queue: QueueOption = None,
    priority: PriorityOption = None,
    misfire: MisfireOption = None,
    misfire_limit: LimitOption = None,
    misfire_grace: GraceOption = None,
    tick: TickOption = None,
    json: Json = False,
) -> None:
    """Change what is named, and nothing else. It stands above what code declares, until `reset`."""
    given: dict[str, Any] = {
        "cron": cron,
        "every_seconds": None if every is None else durations.seconds(every, "every"),
        "timezone": timezone,
        "job": _job(payload, queue, priority) or None,
        "misfire": misfire,
        "misfire_limit": misfire_limit,
        "misfire_grace_seconds": None if misfire_grace is None else durations.seconds(misfire_grace, "misfire_grace"),
        "tick_argument": tick,
    }
    changes = {key: value for key, value in given.items() if value is not None}
    if tick == "":
        changes["tick_argument"] = None
    if not changes:
        raise InvalidInput("changes", "name at least one thing to set, such as --cron '0 9 * * *'")
    _change(begin(context, json), lambda store: store.set_schedule(name, **changes))


def pause(context: typer.Context, name: Name, json: Json = False) -> None:
    """Let it fire no more. Jobs that it has made go on."""
    _change(begin(context, json), lambda store: store.pause_schedule(name))


def resume(context: typer.Context, name: Name, json: Json = False) -> None:
    """End a pause. What would have been due meanwhile is not made up for."""
    _change(begin(context, json), lambda store: store.resume_schedule(name))


def reset(context: typer.Context, name: Name, json: Json = False) -> None:
    """Take back what was set here: it is again as code declares it."""
    _change(begin(context, json), lambda store: store.reset_schedule(name))


def remove(context: typer.Context, name: Name, json: Json = False) -> None:
    """Forget a schedule. Its jobs and its ticks stay."""
    session = begin(context, json)
    with opened(session.settings()) as store:
        declared = store.remove_schedule(name)
    if session.json:
        output.document({"removed": name})
        return
    output.line(f"{name} is removed.")
    if declared:
        output.remark("A worker that starts with code which declares it brings it back: remove it there as well.")


def run(context: typer.Context, name: Name, json: Json = False) -> None:
    """Make one of its jobs now, beside its ticks; print the job's id."""
    session = begin(context, json)
    settings = session.settings()
    with opened(settings) as store:
        answer = store.run_schedule_now(name, lease_seconds=settings.lease_seconds)
    print_enqueued(session, answer)


def _job(payload: str | None, queue: str | None, priority: int | None) -> dict[str, Any]:
    given = {"queue": queue, "priority": priority, "payload": None if payload is None else read_payload(payload)}
    return {key: value for key, value in given.items() if value is not None}


def _change(session: Session, change: Callable[[SqlStore], Schedule], *, create: bool = False) -> None:
    with opened(session.settings(), create=create) as store:
        schedule = change(store)
    if session.json:
        output.document(schedule)
    else:
        _print([schedule])


def _print(schedules: list[Schedule]) -> None:
    now = datetime.now(UTC)
    headers = ("schedule", "task", "when", "next", "last", "declared", "")
    output.table(
        headers,
        [
            (s.name, s.task, _when(s), _next(s, now), age(s.last_at, now), _declared(s, now), _state(s))
            for s in schedules
        ],
    )


def _print_facts(schedule: Schedule) -> None:
    now = datetime.now(UTC)
    output.facts(
        [
            ("schedule", schedule.name),
            ("task", schedule.task),
            ("when", _when(schedule)),
            ("state", _state(schedule) or "active"),
            ("next", _next(schedule, now)),
            ("last", age(schedule.last_at, now)),
            ("misfire", _misfire(schedule)),
            ("tick", schedule.tick_argument),
            ("job", json_text.dumps(schedule.job, ensure_ascii=False) if schedule.job else None),
            ("declared", _declared(schedule, now)),
            ("changed here", ", ".join(sorted(schedule.overrides)) if schedule.declared else None),
        ]
    )


def _print_upcoming(schedule: Schedule, upcoming: list[datetime]) -> None:
    if schedule.paused_at is not None:
        output.line(f"It is paused and will not fire: `holdfast schedules resume {schedule.name}` ends that.")
    elif upcoming:
        rows = [(_local(instant, schedule.timezone), iso(instant)) for instant in upcoming]
        output.table(("next", "UTC"), rows)
    else:
        output.line("It will not fire again as it stands.")


def _print_ticks(ticks: list[Tick]) -> None:
    headers = ("planned", "outcome", "late", "job")
    rows = [
        (
            iso(tick.planned_at),
            tick.outcome,
            f"{(tick.fired_at - tick.planned_at).total_seconds():.1f} s",
            tick.job_id or _left_out(tick),
        )
        for tick in ticks
    ]
    output.table(headers, rows)


def _left_out(tick: Tick) -> str | None:
    if tick.detail is None:
        return None
    most = "at least " if tick.detail.get("more") else ""
    return f"{most}{tick.detail.get('count')} left out, the first of {tick.detail.get('first')}"


def _when(schedule: Schedule) -> str:
    if schedule.cron is not None:
        return f"{schedule.cron} ({schedule.timezone})"
    return f"every {schedule.every_seconds or 0:g} s"


def _next(schedule: Schedule, now: datetime) -> str | None:
    if schedule.paused_at is not None:
        return None
    return age(schedule.next_at, now) or "never"


def _declared(schedule: Schedule, now: datetime) -> str | None:
    return "by an operator" if schedule.declared is None else age(schedule.declared_at, now)


def _state(schedule: Schedule) -> str | None:
    if schedule.paused_at is not None:
        return "paused"
    return "changed here" if schedule.declared is not None and schedule.overrides else None


def _misfire(schedule: Schedule) -> str:
    many = f", at most {schedule.misfire_limit}" if schedule.misfire == Misfire.ALL else ""
    return f"{schedule.misfire}{many}; on time for {schedule.misfire_grace_seconds:g} s"


def _upcoming(schedule: Schedule) -> list[datetime]:
    """From what is stored on; a rule that this version cannot read is told of."""
    if schedule.paused_at is not None or schedule.next_at is None:
        return []
    try:
        rule = schedule.rule()
    except InvalidInput as error:
        output.remark(f"Its times cannot be read: {error}")
        return []

    def instants(moment: datetime | None) -> Any:
        while moment is not None:
            yield moment
            moment = rule.next_after(moment)

    return list(islice(instants(schedule.next_at), SHOWN_INSTANTS))


def _local(instant: datetime, timezone: str) -> str:
    return instant.astimezone(zone_of(timezone)).strftime("%a %Y-%m-%d %H:%M:%S %z")
