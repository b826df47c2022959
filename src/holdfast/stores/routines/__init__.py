"""Verbs that run inside Postgres, as functions.

A session keeps the plans of a function, and it is the same through a pooler: there is nothing to prepare, and next to
nothing to send. Claims and successes are nearly all that a busy worker asks for; to plan a claim took longer than to
run it. A plan that was made while the tables were empty would read all of them later, so only indexes may be used
(`STEADY`), and none of these plans depends on what is asked for.

They are installed with the guards: `db upgrade` replaces them whenever their text changes.
"""

from __future__ import annotations

from holdfast.stores.routines import claim, sources, succeed

FUNCTIONS = (sources.FUNCTION, claim.FUNCTION, succeed.FUNCTION)
