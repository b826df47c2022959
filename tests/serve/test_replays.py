"""Replays over HTTP and on the command line: whose they are, and whether they came to the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx

from holdfast import App
from holdfast.domain.artifacts import JSON, Artifact
from holdfast.domain.job import NewJob
from holdfast.domain.outcome import Failed, JobError, Outcome, Succeeded
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import Finished, InProcess
from tests.serve.command_lines import holdfast, over_http
from tests.serve.grounds import Served
from tests.serve.steps import done, run
from tests.servers.waiting import wait_until

__all__ = ["holdfast", "over_http"]

JOBS = "/api/v1/jobs"


def in_a_file(store: SqlStore, job_id: str, digest: str) -> str:
    saved = Artifact(job_id, 1, "result.json", JSON, 300_000, digest * 64)
    return run(store, job_id, Succeeded(result_ref=str(saved.reference)), (saved,))


def words(shown: Finished) -> list[list[str]]:
    return [line.split() for line in shown.succeeded().out.splitlines()]


BROKEN = Failed(JobError("broken", "no", retryable=False))


def test_replays_are_told_with_how_they_differ(served: Served, client: httpx.Client, queue: str) -> None:
    store = served.store
    original = done(store, NewJob(task="model", queue=queue), Succeeded({"mean": 1.25, "n": 3}))
    outcomes: list[Outcome] = [Succeeded({"n": 3.0, "mean": 1.25}), Succeeded({"mean": 1.31, "n": 3}), BROKEN]
    replays = [run(store, client.post(f"{JOBS}/{original}/replay").json()["id"], one) for one in outcomes]
    waiting = client.post(f"{JOBS}/{original}/replay").json()["id"]
    second = store.replay(replays[0]).id

    told = client.get(f"{JOBS}/{original}/replays").raise_for_status().json()
    assert (told["replay_of"], told["root"]) == (None, None)
    assert [(one["id"], one["state"], one["equal"], one["differences"], one["more"]) for one in told["replays"]] == [
        (replays[0], "succeeded", True, [], 0),
        (replays[1], "succeeded", False, ["$.mean: 1.25 -> 1.31"], 0),
        (replays[2], "failed", False, ["state: succeeded -> failed (broken)"], 0),
        (waiting, "pending", None, [f"job {waiting} is pending and has no outcome yet"], 0),
    ]
    told = client.get(f"{JOBS}/{second}/replays").raise_for_status().json()
    assert told == {"replay_of": replays[0], "root": original, "replays": []}
    app = App(served.url, token=served.tokens["client"])
    assert [job.id for job in app.store.replays(original)] == [*replays, waiting]
    app.close()
    assert client.get(f"{JOBS}/01890a5d-ac96-774b-bcce-b302099a8057/replays").status_code == 404


def test_results_in_files_are_compared_by_what_is_on_record(served: Served, client: httpx.Client, queue: str) -> None:
    store = served.store
    original = in_a_file(store, store.enqueue(NewJob(task="model", queue=queue)).id, "a")
    same = in_a_file(store, store.replay(original).id, "a")
    other = in_a_file(store, store.replay(original).id, "b")
    told = client.get(f"{JOBS}/{original}/replays").json()["replays"]
    assert [(one["id"], one["equal"]) for one in told] == [(same, True), (other, None)]
    assert told[1]["differences"] == [
        f"300,000 bytes, SHA-256 {'a' * 16}… -> 300,000 bytes, SHA-256 {'b' * 16}…",
    ]


def test_a_token_of_some_queues_sees_only_the_replays_in_them(served: Served, queue: str) -> None:
    store = served.store
    original = done(store, NewJob(task="model", queue=queue), Succeeded(1))
    seen = run(store, store.replay(original).id, Succeeded(1))
    elsewhere = store.enqueue(NewJob(task="model", queue="another-" + queue, replay_of=original)).id
    with served.client(token=served.new_token("viewer", queues=(queue,))) as viewer:
        told = viewer.get(f"{JOBS}/{original}/replays").raise_for_status().json()
        assert [one["id"] for one in told["replays"]] == [seen]
        assert viewer.get(f"{JOBS}/{elsewhere}/replays").status_code == 404


def test_whose_replay_a_job_is_is_told_only_to_those_who_see_the_original(served: Served, queue: str) -> None:
    """`secret` ran in another queue; `first` is its replay here, `second` the replay of that; `orphan`'s is gone."""
    store, limited = served.store, served.new_token("viewer", queues=(queue,))
    secret = done(store, NewJob(task="model", queue="another-" + queue), Succeeded(1))
    first = run(store, store.enqueue(NewJob(task="model", queue=queue, replay_of=secret)).id, Succeeded(1))
    second = store.replay(first).id
    gone = store.enqueue(NewJob(task="model", queue=queue)).id
    orphan = store.replay(gone).id
    store.cancel([gone])
    with store.database.engine.begin() as connection:
        connection.exec_driver_sql(f"DELETE FROM holdfast_jobs WHERE id = '{gone}'")
    told = {}
    for name, token in (("limited", limited), ("all", served.tokens["viewer"])):
        with served.client(token=token) as viewer:
            jobs = [viewer.get(f"{JOBS}/{job_id}").raise_for_status().json() for job_id in (first, second, orphan)]
            listed = {
                job["id"]: job for job in viewer.get(JOBS, params={"queue": queue}).raise_for_status().json()["jobs"]
            }
            lineages = [viewer.get(f"{JOBS}/{job['id']}/replays").raise_for_status().json() for job in jobs]
            assert [listed[job["id"]]["replay_of"] for job in jobs] == [job["replay_of"] for job in jobs]
            assert [lineage["replay_of"] for lineage in lineages] == [job["replay_of"] for job in jobs]
            told[name] = [(lineage["replay_of"], lineage["root"]) for lineage in lineages]
    assert told["all"] == [(secret, secret), (first, secret), (gone, gone)]
    assert told["limited"] == [(None, None), (first, first), (None, None)]


def test_replayed_and_compared_on_the_command_line(
    served: Served, holdfast: InProcess, over_http: InProcess, queue: str
) -> None:
    store = served.store
    original = done(store, NewJob(task="model", queue=queue), Succeeded({"mean": 1.0, "seen": [1]}))
    for command in (holdfast, over_http):
        again = command("jobs", "replay", original).succeeded().out.strip()
        assert store.job(again).replay_of == original
        waiting = command("jobs", "compare", again).said_no()
        assert "cannot be told" in waiting.out
        assert "is pending and has no outcome yet" in waiting.out
        run(store, again, Succeeded({"mean": 1.0 + 1e-12, "seen": [1, 2]}))

        different = command("jobs", "compare", again).said_no()
        assert original in different.out.splitlines()[0]
        assert again in different.out.splitlines()[1]
        assert "different\n  $.mean: 1.0 -> 1.000000000001\n  only in the second: $.seen[1] = 2\n" in different.out
        document = command("jobs", "compare", again, "--tolerance", "1e-9", "--json").said_no().document
        assert (document["first"]["id"], document["second"]["id"]) == (original, again)
        assert (document["equal"], document["same_spec"], document["more"]) == (False, True, 0)
        assert document["differences"] == ["only in the second: $.seen[1] = 2"]
        # Named, the first is the first.
        turned = command("jobs", "compare", again, original, "--json").said_no().document
        assert (turned["first"]["id"], turned["differences"][-1]) == (again, "only in the first: $.seen[1] = 2")
        assert "the same result" in command("jobs", "compare", original, original).succeeded().out

        shown = command("jobs", "show", original, "--json").succeeded().document
        assert again in [one["id"] for one in shown["replays"]]
        assert "replays" in command("jobs", "show", original).succeeded().out
        assert ["replay", "of", original] in words(command("jobs", "show", again))
        second = store.replay(again).id
        lineage = words(command("jobs", "show", second))
        assert ["replay", "of", again] in lineage
        assert ["first", "of", "all", original] in lineage
        assert command("jobs", "show", second, "--json").document["root"] == original


def test_what_cannot_be_compared_or_replayed_says_why(served: Served, holdfast: InProcess, queue: str) -> None:
    store = served.store
    alone = done(store, NewJob(task="model", queue=queue), Succeeded(1))
    assert "is not a replay" in holdfast("jobs", "compare", alone).said_no().err
    again = store.replay(alone).id
    with store.database.engine.begin() as connection:
        connection.exec_driver_sql(f"DELETE FROM holdfast_jobs WHERE id = '{alone}'")
    assert "no longer there" in holdfast("jobs", "compare", again).said_no().err
    assert "has been pruned" in holdfast("jobs", "replay", alone).said_no().err
    holdfast("jobs", "replay", "nonsense").refused("job_id", "UUID")
    holdfast("jobs", "replay", again, "--wait", "soon").refused("wait", "duration")
    holdfast("jobs", "compare", again, "--tolerance", "2").refused("tolerance", "relative")
    assert store.replays(again) == []


def test_a_replay_that_is_waited_for_is_compared(served: Served, holdfast: InProcess, queue: str) -> None:
    store = served.store
    original = done(store, NewJob(task="model", queue=queue), Succeeded({"x": 1}))

    def replayed(outcome: Outcome, *more: str) -> Finished:
        known = len(store.replays(original))

        def work() -> None:
            wait_until(lambda: len(store.replays(original)) > known, what="the replay is there")
            run(store, store.replays(original)[-1].id, outcome)

        with ThreadPoolExecutor(1) as worker:
            ran = worker.submit(work)
            finished = holdfast("jobs", "replay", original, "--wait", "60s", *more)
            ran.result(60)
        return finished

    same = replayed(Succeeded({"x": 1})).succeeded()
    assert same.out.splitlines()[1:] == ["the same result"]
    document = replayed(Succeeded({"x": 2}), "--json").said_no().document
    assert (document["state"], document["equal"], document["replay_of"]) == ("succeeded", False, original)
    assert document["differences"] == ["$.x: 1 -> 2"]
    failed = replayed(BROKEN).said_no()
    assert "state: succeeded -> failed (broken)" in failed.out
    late = holdfast("jobs", "replay", original, "--wait", "1ms").said_no()
    assert "is pending and has no outcome yet" in late.out
