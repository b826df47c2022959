"""Faults of what lies between: connections reset, black-holed, slowed, refused, replies cut after the commit, responses
of a proxy's own, and connections closed while they are idle."""

from __future__ import annotations

import random

from holdfast.torture.crew import DATABASE, HTTP, REDIS, RQ, WORKERS
from holdfast.torture.faults import database, messages
from holdfast.torture.faults.kind import Struck
from holdfast.torture.proxy import FaultProxy
from holdfast.torture.proxy_answers import Answers, ProxyResponse
from holdfast.torture.replies import after_commit_postgres, after_post_http, any_reply
from holdfast.torture.stage import Stage

TO_DATABASE, TO_REDIS = "the database", "Redis"
# As an ingress, a gateway or a firewall sends them: none has the problem body of a control plane.
PAGES = (
    ProxyResponse(500),
    ProxyResponse(502),
    ProxyResponse(503, b""),
    ProxyResponse(404, b"default backend - 404", "text/plain"),
    ProxyResponse(403),
    ProxyResponse(405, b""),
    ProxyResponse(413),
    ProxyResponse(200),
)
REPORTS = tuple(f"/internal/worker/{verb}".encode() for verb in ("reports", "complete", "fail", "release"))
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


def http_statuses(stage: Stage, chance: random.Random) -> Struck:
    """Clients and workers get responses that say nothing about their requests, some of which were carried out.

    Half of the time only reports are hit: with claims among them, a worker soon has nothing left to report."""
    name, way = _chosen_plane(stage, chance)
    pages = chance.sample(PAGES, chance.randint(1, 3))
    share, carried_out = chance.choice((0.3, 0.6, 0.9)), chance.choice((0.0, 0.5, 1.0))
    seconds = chance.uniform(1.0, 2.5) * stage.lease_seconds
    paths = chance.choice(((), REPORTS))
    way.answer(Answers(pages, share, carried_out, paths))
    stage.rest(seconds)
    hits = way.pass_on()
    statuses = ", ".join(str(page.status) for page in pages)
    what = "reports" if paths else "requests"
    return _struck(stage, name, f"{statuses} for {hits} {what}, {carried_out:.0%} carried out", hits)


def idle_disconnects(stage: Stage, chance: random.Random) -> Struck:
    """Each end finds out at its next call, as after the idle limit of a server, a gateway or a firewall.

    Mostly on the way to the database, where a closed session is met in the middle of a transaction."""
    name = chance.choice(sorted([*stage.ways, *([TO_DATABASE] * 2 if TO_DATABASE in stage.ways else [])]))
    close = {TO_DATABASE: database.end_idle_sessions, TO_REDIS: messages.end_idle_clients}.get(name)
    hits = 0
    for _ in range(chance.randint(6, 12)):
        hits += stage.ways[name].close_idle() if close is None else close(stage)
        stage.rest(chance.uniform(0.2, 0.5))
    return _struck(stage, name, f"{hits} connections", hits)


def _chosen_plane(stage: Stage, chance: random.Random) -> tuple[str, FaultProxy]:
    name = chance.choice(sorted(name for name in stage.ways if name not in (TO_DATABASE, TO_REDIS)))
    return name, stage.ways[name]


def _chosen(stage: Stage, chance: random.Random) -> tuple[str, FaultProxy]:
    name = chance.choice(sorted(stage.ways))
    return name, stage.ways[name]


def _struck(stage: Stage, name: str, detail: str, hits: int) -> Struck:
    there = {member.door for member in stage.crew.of(*WORKERS)}
    doors = tuple(door for door in _DOORS.get(name, (HTTP,)) if door in there)
    return Struck(f"the way to {name}", detail, doors, hits=hits)
