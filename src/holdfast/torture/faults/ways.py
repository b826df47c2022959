"""Faults of what lies between: connections reset, black-holed, slowed, refused, and answers cut after the commit."""

from __future__ import annotations

import random

from holdfast.torture.crew import DATABASE, HTTP, REDIS, RQ, WORKERS
from holdfast.torture.faults.kind import Struck
from holdfast.torture.proxy import FaultProxy
from holdfast.torture.replies import after_commit_postgres, after_post_http, any_reply
from holdfast.torture.stage import Stage

TO_DATABASE, TO_REDIS = "the database", "Redis"
# Who stands behind a way, besides everybody who works through a control plane.
_DOORS = {TO_DATABASE: (DATABASE, RQ, REDIS, HTTP), TO_REDIS: (REDIS, RQ)}


def connections_reset(stage: Stage, chance: random.Random) -> Struck:
    name, way = _chosen(stage, chance)
    hits = 0
    for _ in range(chance.randint(1, 5)):
        hits += way.reset()
        stage.rest(chance.uniform(0.05, 0.4))
    return _struck(stage, name, f"{hits} connections", hits)


def black_hole(stage: Stage, chance: random.Random) -> Struck:
    """Half of them heal, as after a short partition; half are forgotten by whatever kept track of them."""
    name, way = _chosen(stage, chance)
    heals = chance.random() < 0.5
    seconds = chance.uniform(0.4, 2.0) * stage.lease_seconds
    way.black_hole(resume=heals)
    stage.rest(seconds)
    hits = way.forward()
    # Nobody is told on either side. The server keeps its ends until its own keepalive finds out: here, in the end.
    stage.rest(chance.uniform(0.0, 0.5) * stage.lease_seconds)
    way.reset_silent()
    return _struck(stage, name, f"{seconds:.1f} s, {'healed' if heals else 'half open'}, {hits} connections", hits)


def slow(stage: Stage, chance: random.Random) -> Struck:
    name, way = _chosen(stage, chance)
    seconds = chance.uniform(1.0, 2.5) * stage.lease_seconds
    least = chance.choice((0.02, 0.1, 0.4))
    hits = way.slow(least, 4 * least, chance=0.5)
    stage.rest(seconds)
    way.full_speed()
    return _struck(stage, name, f"{seconds:.1f} s, {1000 * least:.0f} ms and more a packet", hits)


def refused(stage: Stage, chance: random.Random) -> Struck:
    name, way = _chosen(stage, chance)
    seconds = chance.uniform(0.3, 1.5) * stage.lease_seconds
    way.refuse()
    hits = way.reset()
    stage.rest(seconds)
    hits += way.admit()
    return _struck(stage, name, f"{seconds:.1f} s", hits)


def replies_cut(stage: Stage, chance: random.Random) -> Struck:
    """What was asked for is done, and whoever asked does not hear of it."""
    name, way = _chosen(stage, chance)
    wanted, seconds = chance.randint(3, 12), stage.lease_seconds
    recogniser = {TO_DATABASE: after_commit_postgres, TO_REDIS: any_reply}.get(name, after_post_http)
    before = way.hits.cut
    way.cut_replies(wanted, recogniser)
    stage.rest(seconds)
    way.keep_replies()
    cut = way.hits.cut - before
    return _struck(stage, name, f"{cut} answers", cut)


def _chosen(stage: Stage, chance: random.Random) -> tuple[str, FaultProxy]:
    name = chance.choice(sorted(stage.ways))
    return name, stage.ways[name]


def _struck(stage: Stage, name: str, detail: str, hits: int) -> Struck:
    there = {member.door for member in stage.crew.of(*WORKERS)}
    doors = tuple(door for door in _DOORS.get(name, (HTTP,)) if door in there)
    return Struck(f"the way to {name}", detail, doors, hits=hits)
