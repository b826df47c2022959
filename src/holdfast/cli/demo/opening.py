"""Scene one: a control plane, and two workers that come in by two doors."""

from __future__ import annotations

from typing import Any

from holdfast.cli.demo.names import GROUP
from holdfast.cli.demo.stage import ADA, DOORS, GRACE, Stage

SIGN_IN = "This link signs you in, once:"


def play(stage: Stage, *, link: bool) -> dict[str, Any]:
    voice, names = stage.voice, stage.names
    voice.scene("1. Two workers, two doors")
    voice.say(f"Control plane and dashboard: {stage.url}", SIGN_IN if link else "", "bold")
    if link:
        voice.whole(_link(stage))
    pid = stage.crew.start(ADA, names.queues, {"DATABASE_URL": stage.database, "WORKER_ID": names.own(ADA)})
    voice.say(f"Worker {ADA} starts (pid {pid}). It works on the database itself.")
    door = {"HOLDFAST_CONTROL_PLANE": stage.url, "HOLDFAST_TOKEN": stage.token, "WORKER_ID": names.own(GRACE)}
    pid = stage.crew.start(GRACE, names.queues, door)
    voice.say(
        f"Worker {GRACE} starts (pid {pid}). It has no database: only HTTP, and a token.",
        "Both serve the same queues. Whoever holds a job holds it under the same lease.",
    )
    stage.wait(lambda: stage.store.announced(f"{GROUP}.collect") is not None, "a worker tells which tasks it knows")
    stage.wait(lambda: _present(stage) == set(DOORS), "both workers are there")
    voice.say(f"{ADA} and {GRACE} are there, with the sample tasks of examples/price_watch and examples/model_runs.")
    return {"workers": {name: DOORS[name] for name in DOORS}}


def _link(stage: Stage) -> str:
    from holdfast.serve.links import LINK_SECONDS, PATH

    link = stage.store.create_admin_link(LINK_SECONDS)
    return f"{stage.url}{PATH}?code={link.text}"


def _present(stage: Stage) -> set[str]:
    prefix = stage.names.prefix
    here = [worker for worker in stage.store.workers() if worker.id.startswith(prefix) and worker.state != "starting"]
    return {stage.called(worker.id) for worker in here} & set(DOORS)
