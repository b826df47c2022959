"""What the figures mean, in words. Pure.

A batch is taken apart: the way to the database and back, waiting for the disk, what this process computes; what is
left is the database's own work. The largest part is what bounds it.
"""

from __future__ import annotations

from typing import assert_never

from holdfast.bench.report import Bound, Drain, Loop, Verdict

# A claim is one statement and a report is one: each goes there and comes back, and each is a commit.
VERBS = 2
BUSY = 0.85  # of all cores: more is not to be had
DAY_SECONDS = 86_400


def judge(
    *, has_wire: bool, round_trip_ms: float, flush_ms: float, loops: tuple[Loop, ...], drain: Drain, cores: int
) -> Verdict:
    wire = round_trip_ms if has_wire else 0.0
    single, batches = (_largest(parts(loop, wire, flush_ms)) for loop in (loops[0], loops[-1]))
    worker = _of_worker(drain, batches)
    a_day = int(drain.per_second * DAY_SECONDS)
    words = (
        _said(loops[0], single, wire, flush_ms, has_wire),
        _said(loops[-1], batches, wire, flush_ms, has_wire),
        _worker_said(drain, worker, cores, has_wire),
        f"That is {_rounded(a_day)} jobs a day, if they do nothing and it never rests.",
    )
    return Verdict(single, batches, worker, a_day, words)


def parts(loop: Loop, round_trip_ms: float, flush_ms: float) -> dict[Bound, float]:
    """Milliseconds of one claim and its report."""
    whole = 1000 * loop.batch / loop.per_second
    known: dict[Bound, float] = {
        "round_trip": VERBS * round_trip_ms,
        "flush": VERBS * flush_ms,
        "client_cpu": loop.cpu_share * whole,
    }
    return {**known, "database": max(0.0, whole - sum(known.values()))}


def _largest(found: dict[Bound, float]) -> Bound:
    return max(found, key=lambda bound: found[bound])


def _of_worker(drain: Drain, batches: Bound) -> Bound:
    return "machine_cpu" if drain.machine_busy is not None and drain.machine_busy >= BUSY else batches


def _said(loop: Loop, bound: Bound, round_trip_ms: float, flush_ms: float, has_wire: bool) -> str:
    whole = 1000 * loop.batch / loop.per_second
    what = "One job at a time" if loop.batch == 1 else f"A batch of {loop.batch}"
    share = parts(loop, round_trip_ms, flush_ms)[bound]
    return (
        f"{what} takes {whole:.2g} ms to claim and settle, {min(share, whole):.2g} ms of it {_because(bound, has_wire)}"
    )


def _because(bound: Bound, has_wire: bool) -> str:
    match bound:
        case "round_trip":
            return "the way to the database and back: being nearer to it helps, and so do larger batches."
        case "flush":
            return (
                "waiting for the disk: a faster disk, or one with a protected write cache, helps; so do larger batches."
            )
        case "client_cpu":
            if not has_wire:
                return "computing in this process, which does the database's work too: a faster processor helps."
            return "computing in this process: more workers help, as long as there are cores for them."
        case "database":
            return "work of the database itself: its processor, its memory, or others who use it."
        case "machine_cpu":
            return "computing on this machine."
        case _:
            assert_never(bound)


def _worker_said(drain: Drain, bound: Bound, cores: int, has_wire: bool) -> str:
    said = f"A worker with {_counted(drain.processes, 'runner')} finished {drain.per_second:,.0f} jobs a second"
    if bound == "machine_cpu":
        more = "more machines for workers help" if has_wire else "for more, use Postgres and further machines"
        return f"{said}, with all of this machine busy ({_counted(cores, 'core')}): {more}."
    if drain.machine_busy is None:
        return f"{said}."
    return f"{said}, with {drain.machine_busy:.0%} of this machine busy: there is room for more workers here."


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _rounded(count: int) -> str:
    if count >= 1_000_000_000:
        return f"{count / 1_000_000_000:.1f} billion"
    if count >= 1_000_000:
        return f"{count / 1_000_000:.0f} million" if count >= 10_000_000 else f"{count / 1_000_000:.1f} million"
    return f"{count:,}"
