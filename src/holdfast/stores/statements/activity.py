"""The roll-up of the audit log by the minute: read its newest part in groups, write the rows, read them for charts.

How long a job waited is known from its row while that says when the claim was due: until the job is put off. It is
known from the event before the claim otherwise: that says when the job came back, and after what delay it was due. Of
the first claim of a job that has come back since, nobody knows when it was due.
"""

from __future__ import annotations

from functools import cache

from holdfast.domain.activity import COUNTS, DEPTHS, RUN_BOUNDS, WAIT_BOUNDS
from holdfast.domain.lifecycle import CLAIMABLE, Event
from holdfast.domain.rolling import COUNTED_AS
from holdfast.stores.schema import in_states
from holdfast.stores.statements.words import Statement, Words

DUTY = "minutes"
ROW = {
    "kind": "text",
    "name": "text",
    "minute": "timestamptz",
    **dict.fromkeys(COUNTS, "integer"),
    **dict.fromkeys(DEPTHS, "integer"),
    "oldest_seconds": "float8",
    "wait": "json",
    "run": "json",
}
_DELAYED = (Event.RETRY_SCHEDULED, Event.CRASHED, Event.SNOOZED, Event.LEASE_LOST)
_AT_ONCE = (Event.REQUEUED, Event.RELEASED)
_ENDS_RUN = "e.from_state = 'running' AND e.to_state <> 'running'"
_PREVIOUS = "holdfast_events p WHERE p.job_id = e.job_id AND p.seq = e.seq - 1"


def _quoted(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _between(words: Words, start: str, end: str) -> str:
    """Seconds from one moment to the other, to the microsecond."""
    if words.postgres:
        return f"CAST(extract(epoch FROM {end} - {start}) AS float8)"
    whole = f"(strftime('%s', {end}) - strftime('%s', {start}))"
    return f"({whole} + (substr({end}, 21, 6) - substr({start}, 21, 6)) / 1000000.0)"


def _epoch(words: Words, moment: str) -> str:
    """Whole seconds since 1970."""
    if words.postgres:
        return f"CAST(floor(extract(epoch FROM {moment})) AS bigint)"
    return f"CAST(strftime('%s', {moment}) AS integer)"


def _delay(words: Words) -> str:
    """Of the event before. A row that was typed by hand may say anything."""
    if words.postgres:
        said = "p.detail ->> 'delay_seconds'"
        return f"CASE WHEN {said} ~ '^[0-9]{{1,9}}([.][0-9]{{1,9}})?$' THEN CAST({said} AS float8) ELSE 0.0 END"
    said = "json_extract(p.detail, '$.delay_seconds')"
    return f"CASE WHEN json_valid(p.detail) AND typeof({said}) IN ('integer', 'real') THEN {said} ELSE 0.0 END"


def _waited(words: Words) -> str:
    lesser = "least" if words.postgres else "min"
    due, back = _between(words, "j.run_after", "e.at"), _between(words, "p.at", "e.at")
    return f"""
        CASE WHEN j.attempt = e.attempt AND j.run_after <= e.at AND NOT {in_states(CLAIMABLE, "j.state")}
             THEN CASE WHEN e.attempt <= 1 THEN {due}
                       ELSE {lesser}({due}, coalesce((SELECT {back} FROM {_PREVIOUS}), {due})) END
             ELSE (SELECT CASE WHEN p.event IN ({_quoted(_DELAYED)}) THEN {back} - {_delay(words)}
                               WHEN p.event IN ({_quoted(_AT_ONCE)}) THEN {back} END
                   FROM {_PREVIOUS}) END"""


def _ran(words: Words) -> str:
    began = """(SELECT p.at FROM holdfast_events p WHERE p.job_id = e.job_id AND p.seq < e.seq
                AND p.attempt = e.attempt AND p.event = 'claimed' ORDER BY p.seq DESC LIMIT 1)"""
    began = f"CASE WHEN j.attempt = e.attempt THEN j.claimed_at ELSE {began} END"
    return _between(words, f"({began})", "e.at")


def _place(words: Words, seconds: str, bounds: tuple[float, ...]) -> str:
    """As `domain/activity.bucket`; -1 for less than nothing."""
    if words.postgres:
        listed = ", ".join(map(repr, (0.0, *bounds)))
        return f"width_bucket({seconds}, CAST(ARRAY[{listed}] AS float8[])) - 1"
    steps = " ".join(f"WHEN {seconds} < {bound!r} THEN {place}" for place, bound in enumerate(bounds))
    return f"CASE WHEN {seconds} IS NULL THEN NULL WHEN {seconds} < 0 THEN -1 {steps} ELSE {len(bounds)} END"


def _named(words: Words, name: str) -> str:
    """What was pruned says itself what it was."""
    said = f"p.detail ->> '{name}'" if words.postgres else f"json_extract(p.detail, '$.{name}')"
    # Not by the index of what was pruned, in which the job comes last: without statistics Postgres takes it for short.
    event = "p.event || ''" if words.postgres else "p.event"
    gone = f"(SELECT {said} FROM holdfast_events p WHERE p.job_id = e.job_id AND {event} = 'pruned')"
    return f"CASE WHEN j.id IS NULL THEN {gone} ELSE j.{name} END"


_HAS_CACHE = f"""({_ENDS_RUN} AND CAST(e.detail AS text) LIKE '%"cache"%')"""


def _window(words: Words) -> str:
    return f"e.at >= {words.moment('since')} AND e.at < {words.moment('until')}"


def _happened(words: Words) -> str:
    """Minute, queue, task, source, event, whether a run ended, the place in a histogram, how many, and whether any of
    them speaks of a cache. Materialised, a duration is computed once and not for every place that it stands in; and
    Postgres, which takes the groups for as many as the rows otherwise, does not sort these for them, on disk."""
    place = f"CASE WHEN event = 'claimed' THEN {_place(words, 'seconds', WAIT_BOUNDS)}"
    place += f" ELSE {_place(words, 'seconds', RUN_BOUNDS)} END"
    return f"""
        WITH timed AS MATERIALIZED (
          SELECT {_epoch(words, "e.at")} / 60 * 60 AS minute, {_named(words, "queue")} AS queue,
                 {_named(words, "task")} AS task, j.source, e.event, {_ENDS_RUN} AS ends_run,
                 CASE WHEN e.event = 'claimed' THEN {_waited(words)} WHEN {_ENDS_RUN} THEN {_ran(words)} END AS seconds,
                 CASE WHEN {_HAS_CACHE} THEN 1 ELSE 0 END AS has_cache
          FROM holdfast_events e LEFT JOIN holdfast_jobs j ON j.id = e.job_id
          WHERE {_window(words)} AND e.event IN ({_quoted(tuple(COUNTED_AS))}))
        SELECT minute, queue, task, source, event, ends_run, {place} AS place, count(*), max(has_cache) FROM timed
        GROUP BY 1, 2, 3, 4, 5, 6, 7"""


def _cached(words: Words) -> str:
    said = "CAST(e.detail -> 'cache' AS text)" if words.postgres else "json_extract(e.detail, '$.cache')"
    readable = "" if words.postgres else "AND json_valid(e.detail)"
    return f"""
        SELECT {_epoch(words, "e.at")} / 60 * 60 AS minute, {said} AS said, count(*) FROM holdfast_events e
        WHERE {_window(words)} AND {_HAS_CACHE} {readable} GROUP BY 1, 2"""


def _look(words: Words) -> str:
    return f"""
        SELECT {words.now}, d.ticked_at, d.detail
        FROM (SELECT 1) one LEFT JOIN holdfast_duties d ON d.name = '{DUTY}'"""


def _anything(words: Words) -> str:
    return f"SELECT 1 FROM holdfast_events e WHERE e.at >= {words.moment('since')} LIMIT 1"


def _take(words: Words) -> str:
    seen = words.moment("seen")
    same = f"d.ticked_at IS NOT DISTINCT FROM {seen}" if words.postgres else f"d.ticked_at IS {seen}"
    return f"""
        INSERT INTO holdfast_duties AS d (name, ticked_at, holder) VALUES ('{DUTY}', {words.now}, :holder)
        ON CONFLICT (name) DO UPDATE SET ticked_at = {words.now}, holder = :holder WHERE {same}
        RETURNING ticked_at"""


def _finish(words: Words) -> str:
    detail = "CAST(:detail AS json)" if words.postgres else ":detail"
    return f"""
        UPDATE holdfast_duties SET detail = {detail}
        WHERE name = '{DUTY}' AND holder = :holder AND ticked_at = {words.moment("ticked_at")} RETURNING name"""


def _keep(words: Words) -> str:
    """Rows that are already so are left alone: most of a minute that is computed again."""
    values = (*COUNTS, "wait", "run")
    changes = ", ".join(f"{name} = excluded.{name}" for name in values)
    looked = ", ".join(
        f"{name} = CASE WHEN excluded.ready IS NULL THEN m.{name} ELSE excluded.{name} END" for name in DEPTHS
    )

    def row(alias: str) -> str:
        texts = [f"CAST({alias}.{name} AS text)" if name in ("wait", "run") else f"{alias}.{name}" for name in values]
        return f"({', '.join(texts)})"

    differs = "IS DISTINCT FROM" if words.postgres else "IS NOT"
    return f"""
        INSERT INTO holdfast_minutes AS m ({", ".join(ROW)})
        SELECT {", ".join(f"r.{name}" for name in ROW)} FROM {words.rows(ROW)} {words.true_filter}
        ON CONFLICT (kind, name, minute) DO UPDATE SET {changes}, {looked}
        WHERE excluded.ready IS NOT NULL OR {row("m")} {differs} {row("excluded")}"""


def _seen_queues(words: Words) -> str:
    return f"""
        SELECT m.name FROM holdfast_minutes m
        WHERE m.minute = {words.moment("minute")} AND m.kind = 'queue' AND m.ready IS NOT NULL"""


def _step(words: Words, alias: str) -> str:
    return f"{_epoch(words, f'{alias}.minute')} / :step * :step"


@cache
def series(named: bool) -> Statement:
    """Name, beginning of the step, when somebody last looked, the sums, the depths of that look, and the histograms as
    arrays of arrays. Without names: the busiest `most`."""

    def build(words: Words) -> str:
        listed = words.texts("names")
        since = f"m.kind = :kind AND m.minute >= {words.moment('since')}"
        among = f"SELECT value FROM {listed}"
        if not named:
            among = f"""
              SELECT m.name FROM holdfast_minutes m WHERE {since} GROUP BY m.name
              ORDER BY sum(m.enqueued + m.started) DESC, m.name LIMIT :most"""
        gathered = ", ".join(_gathered(words, name) for name in ("wait", "run"))
        return f"""
            WITH steps AS (
              SELECT m.name, {_step(words, "m")} AS step, {", ".join(f"sum(m.{name}) AS {name}" for name in COUNTS)},
                     max(CASE WHEN m.ready IS NOT NULL THEN m.minute END) AS looked_at, {gathered}
              FROM holdfast_minutes m WHERE {since} AND m.name IN ({among}) GROUP BY m.name, {_step(words, "m")})
            SELECT s.name, s.step, s.looked_at, {", ".join(f"s.{name}" for name in COUNTS)},
                   {", ".join(f"d.{name}" for name in DEPTHS)}, s.wait, s.run
            FROM steps s
            LEFT JOIN holdfast_minutes d ON d.kind = :kind AND d.name = s.name AND d.minute = s.looked_at
              AND d.minute >= {words.moment("since")}"""

    return Statement(f"activity.series.{'named' if named else 'busiest'}", build, replan=True)


def _gathered(words: Words, name: str) -> str:
    if words.postgres:
        return f"json_agg(m.{name}) FILTER (WHERE m.{name} IS NOT NULL) AS {name}"
    return f"json_group_array(json(m.{name})) FILTER (WHERE json_valid(m.{name})) AS {name}"


def _looks(words: Words) -> str:
    """When somebody last looked at the queues, step by step."""
    return f"""
        SELECT {_step(words, "m")} AS step, max(m.minute) FROM holdfast_minutes m
        WHERE m.kind = 'all' AND m.name = '' AND m.ready IS NOT NULL AND m.minute >= {words.moment("since")}
        GROUP BY 1"""


def _forget(words: Words) -> str:
    age = "-CAST(:keep AS float8)" if words.postgres else "-:keep"
    place = "ctid" if words.postgres else "rowid"
    chosen = f"""
        SELECT {place} FROM holdfast_minutes WHERE minute < {words.after(age, words.fixed_now)}
        ORDER BY minute LIMIT :limit"""
    where = f"{place} = ANY (ARRAY({chosen}))" if words.postgres else f"{place} IN ({chosen})"
    return f"DELETE FROM holdfast_minutes WHERE {where} RETURNING kind"


LOOK = Statement("activity.look", _look)
ANYTHING = Statement("activity.anything", _anything, replan=True)
TAKE = Statement("activity.take", _take)
FINISH = Statement("activity.finish", _finish)
HAPPENED = Statement("activity.happened", _happened, replan=True)
CACHED = Statement("activity.cached", _cached, replan=True)
SEEN_QUEUES = Statement("activity.seen_queues", _seen_queues)
KEEP = Statement("activity.keep", _keep)
LOOKS = Statement("activity.looks", _looks, replan=True)
FORGET = Statement("activity.forget", _forget, replan=True)
