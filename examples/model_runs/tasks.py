"""The model as a task: `holdfast worker` and `rq worker` run it, `submit.py` asks for it."""

from __future__ import annotations

from dataclasses import asdict

from model import LogisticGrowth, Model, RunSpec

from holdfast import App, ArtifactRef, Context

app = App()
MODEL: Model = LogisticGrowth()


@app.task(queue="models", version=MODEL.version, timeout="10m", max_attempts=3, retry="10s")
def run_model(spec: RunSpec, ctx: Context) -> ArtifactRef:
    ctx.log("started", model=MODEL.name, version=MODEL.version, spec=asdict(spec))
    found = MODEL.run(spec, ctx.progress)
    ctx.log("finished", statistics=found)
    run = {"model": MODEL.name, "version": MODEL.version, "spec": asdict(spec), "statistics": found}
    return ctx.save("run.json", run)  # returned, the file's reference is the job's result_ref


# A spec that is waiting or running is not queued again (unique), and one that has been run is not run again (reuse).
run_once = run_model.using(unique=True, reuse="365d")
