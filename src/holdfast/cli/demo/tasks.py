"""The tasks of both examples as one app, for the demo's workers. Their runners have the examples on their path."""

from __future__ import annotations

import importlib
import os
from dataclasses import replace

from examples.price_watch import tasks as price_watch
from examples.price_watch.marketplaces import MARKETPLACES
from holdfast import App
from holdfast.cli.demo.names import GROUP, VARIABLE, Names

names = Names(os.environ.get(VARIABLE, ""))
model_runs = importlib.import_module("tasks")  # of examples/model_runs, whose modules are in no package

app = App(name="demo")
samples = app.group(GROUP)
for example in (price_watch.app, model_runs.app):
    for task in list(example.tasks.values()):
        # Moved, not copied: a task that enqueues another then finds it here.
        samples._register(task, task.name, {**task.definition.options, "queue": names.queue_of(task.name)})

for declared in price_watch.app.declared_sources():
    app.source(names.own(declared.name), **declared.limits)
MARKETPLACES.update({names.own(name): replace(market, name=names.own(name)) for name, market in MARKETPLACES.items()})
