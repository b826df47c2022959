"""Write the pages that are generated from the code: `make docs`. A test compares them with what is committed."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from holdfast.domain.history import SENTENCES
from holdfast.domain.lifecycle import RULES, Charge, Rule, State
from holdfast.domain.worker_states import RUN_MOVES, WORKER_MOVES, AnyState, RunState, WorkerState
from holdfast.stores.inspection.postgres import grants
from scripts import access_table, scale_tables, torture_tables

DOCS = Path(__file__).resolve().parent.parent / "docs"

MEANINGS = {
    State.PENDING: "may be claimed once `run_after` has passed",
    State.RUNNING: "exactly one live lease",
    State.RETRYABLE: "a transient error or a crash; claimable again once the backoff in `run_after` has passed",
    State.SUCCEEDED: "terminal",
    State.FAILED: "terminal; this set is the dead-letter queue; an operator may requeue",
    State.CANCELLED: "terminal; an operator may requeue",
}

WORKER_MEANINGS = {
    WorkerState.STARTING: "its runners start and say which tasks they know",
    WorkerState.CONNECTING: "asks the store whether it is there; once connected before, that is one cheap check",
    WorkerState.RECOVERING: "does the duties that are due, such as reaping expired leases, and announces its tasks",
    WorkerState.POLLING: "claims; it stays here for as long as there is work",
    WorkerState.BACKING_OFF: "chooses how long to wait: longer each time nothing is found, with jitter",
    WorkerState.IDLE: "waits; a wake-up ends it early",
    WorkerState.ERROR_WAIT: "waits 5 s after a store that is away or an exception that nobody handled",
    WorkerState.DRAINING: "was told to stop: claims no more, keeps its leases, finishes or gives back what runs",
    WorkerState.STOPPED: "holds nothing any more; the process ends",
}

RUN_MEANINGS = {
    RunState.CLAIMING: "the lease is ours, a runner is about to start it",
    RunState.PROCESSING: "a runner works on it",
    RunState.REPORTING_SUCCESS: "it succeeded, and the store is being told",
    RunState.REPORTING_FAILURE: "it failed, crashed or is given back, and the store is being told",
}


def lifecycle() -> str:
    states = "\n".join(f"| `{state}` | {MEANINGS[state]} |" for state in State)
    rules = "\n".join(_rule(rule) for rule in RULES)
    arrows = "\n".join(_arrows())
    return f"""# The lifecycle of a job

<!-- Generated from src/holdfast/domain/lifecycle.py by `make docs`. Do not edit. -->

| state | meaning |
|---|---|
{states}

| event | from → to | guard | charges |
|---|---|---|---|
{rules}

```mermaid
stateDiagram-v2
{arrows}
```

Every transition raises the job's `seq` by one and appends one row of that `seq` to `holdfast_events`, in the same
transaction, by trigger. The database refuses any transition that is not in this table, also one typed by hand; a legal
one typed by hand is completed and marked `{{"manual": true}}` in its audit row.

`attempt` only ever grows: it is the fence number that user code can hand to other systems. The lease token is a secret
that authorises; the store keeps its digest alone. Neither can do the other's job.
"""


def _rule(rule: Rule) -> str:
    sources = ", ".join("∅" if source is None else source for source in rule.sources)
    target = "row deleted" if rule.target is None else rule.target
    charge = "" if rule.charge is Charge.NOTHING else str(rule.charge)
    return f"| `{rule.event}` | {sources} → {target} | {rule.guard} | {charge} |"


def _arrows() -> Iterator[str]:
    for rule in RULES:
        for source in rule.sources:
            yield f"    {source or '[*]'} --> {rule.target or '[*]'}: {rule.event}"


def verify() -> str:
    rules = "\n".join(f"| `{rule}` | {sentence} |" for rule, sentence in SENTENCES.items())
    return f"""# What `holdfast verify` proves

<!-- Generated from src/holdfast/domain/history.py by `make docs`. Do not edit. -->

`holdfast verify` reads the audit log beside the jobs, job by job, and checks each rule below. It runs on a live
database (every page of jobs is read in a short snapshot of its own), in constant memory, and exits 1 when it finds a
violation. `--json` prints `{{"ok", "jobs", "events", "violations": [{{"job_id", "rule", "detail"}}]}}`.

| rule | what must hold |
|---|---|
{rules}

On a terminal it shows how far it is, on stderr, and leaves no trace of that; with `--json`, or where stderr is no
terminal, it shows nothing. The events are counted first, so that the share is a true one; if the store gets more of
them meanwhile than were counted, there is no share any more, only how many were read. A program gets the same from
`holdfast.maintenance.verify`: `verify(histories, on_progress, total=histories.count(), stop=event.is_set)` tells
`Progress(jobs, events, total)` every 10,000 events and at the end, and raises `Stopped` once it is asked to stop. Of
histories that were not all read there is no verdict.
"""


def worker_states() -> str:
    return f"""# The states of a worker, and of a run

<!-- Generated from src/holdfast/domain/worker_states.py by `make docs`. Do not edit. -->

A worker has one state of its own, and one for each job that it runs. Both tables are data, and the worker refuses a
move that is not in them. Runs go on whatever the worker's own state is: an idle worker may well have ten of them.

## The worker

{_meanings(WORKER_MEANINGS)}

{_moves(WORKER_MOVES)}

{_diagram(WORKER_MOVES, WorkerState.STARTING)}

## A run

{_meanings(RUN_MEANINGS)}

{_moves(RUN_MOVES)}

{_diagram(RUN_MOVES, RunState.CLAIMING)}

A job that was claimed but never started (prefetched, then handed back by a worker that drains) leaves from `claiming`:
it is released without charge, and of a run that never was there is nothing to report.

## Where to see them

| | the worker's state | the state of its runs |
|---|---|---|
| database | the column `holdfast_workers.state` | `holdfast_jobs.state` is `running` for all four |
| metric | `holdfast_worker_state{{state="polling"}}` is 1 | `holdfast_job_runs{{state="processing"}}` counts them |
| log, at debug | `worker moved` | `run moved`, with `job_id` and `attempt` |
| log, always | `worker waits after an error`, `worker is draining`, `worker stopped` | every end but a success |
| HTTP | `/healthz` and `/readyz`, when the worker was started with `--health` | |

`holdfast_workers` is there for people to look at. Nothing depends on it: who may run a job is decided by its lease.
"""


def _meanings(meanings: Mapping[AnyState, str]) -> str:
    rows: list[str] = [f"| `{state}` | {meaning} |" for state, meaning in meanings.items()]
    return "\n".join(["| state | meaning |", "|---|---|", *rows])


def _moves(moves: Mapping[AnyState, Mapping[AnyState, str]]) -> str:
    rows: list[str] = [
        f"| `{source}` | `{target}` | {reason} |"
        for source, targets in moves.items()
        for target, reason in targets.items()
    ]
    return "\n".join(["| from | to | when |", "|---|---|---|", *rows])


def _diagram(moves: Mapping[AnyState, Mapping[AnyState, str]], start: AnyState) -> str:
    arrows: list[str] = [f"    [*] --> {start}"]
    for source, targets in moves.items():
        # In a diagram a colon ends the reason's first part; the table above has all of it.
        arrows += [f"    {source} --> {target}: {reason.partition(':')[0]}" for target, reason in targets.items()]
        arrows += [] if targets else [f"    {source} --> [*]"]
    return "\n".join(["```mermaid", "stateDiagram-v2", *arrows, "```"])


def scale() -> str:
    """Only its derived tables."""
    return scale_tables.rendered((DOCS / "scale.md").read_text(encoding="utf-8"))


def security() -> str:
    """Only its table of operations."""
    return access_table.rendered((DOCS / "security.md").read_text(encoding="utf-8"))


def postgres() -> str:
    """Only the grants."""
    page = (DOCS / "postgres.md").read_text(encoding="utf-8")
    statements = "\n".join(textwrap.fill(grant, 118, subsequent_indent="  ") for grant in grants("holdfast_worker"))
    region = f"<!-- grants -->\n```sql\n{statements}\n```\n<!-- /grants -->"
    return re.sub(r"<!-- grants -->.*<!-- /grants -->", lambda _: region, page, flags=re.DOTALL)


def torture() -> str:
    """Only its tables."""
    return torture_tables.torture((DOCS / "torture.md").read_text(encoding="utf-8"))


def reliability() -> str:
    """Only the figures of the runs."""
    return torture_tables.reliability((DOCS / "reliability.md").read_text(encoding="utf-8"))


PAGES = {
    "lifecycle.md": lifecycle,
    "postgres.md": postgres,
    "reliability.md": reliability,
    "scale.md": scale,
    "security.md": security,
    "torture.md": torture,
    "verify.md": verify,
    "worker-states.md": worker_states,
}


def main() -> int:
    for name, render in PAGES.items():
        (DOCS / name).write_text(render(), encoding="utf-8")
        print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
