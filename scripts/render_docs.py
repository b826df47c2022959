"""Write the pages that are generated from the code: `make docs`. A test compares them with what is committed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.domain.history import SENTENCES
from holdfast.domain.lifecycle import RULES, Charge, Rule, State

DOCS = Path(__file__).resolve().parent.parent / "docs"

MEANINGS = {
    State.PENDING: "may be claimed once `run_after` has passed",
    State.RUNNING: "exactly one live lease",
    State.RETRYABLE: "a transient error or a crash; claimable again once the backoff in `run_after` has passed",
    State.SUCCEEDED: "terminal",
    State.FAILED: "terminal; this set is the dead-letter queue; an operator may requeue",
    State.CANCELLED: "terminal; an operator may requeue",
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
"""


PAGES = {"lifecycle.md": lifecycle, "verify.md": verify}


def main() -> int:
    for name, render in PAGES.items():
        (DOCS / name).write_text(render(), encoding="utf-8")
        print(f"wrote docs/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
