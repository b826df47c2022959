"""Signing in: who gets a page, who may change something, and who is sent away."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx
import pytest

from holdfast.domain.answers import Beat
from holdfast.domain.job import NewJob
from holdfast.domain.logs import LogLine, Stream
from holdfast.domain.outcome import Failed, JobError, Report, Snoozed
from holdfast.domain.views import WorkerRow
from holdfast.serve.dashboard.bulk import BATCH, BulkRun, BulkRuns, _apply
from holdfast.serve.dashboard.session import cookie_name, csrf_word, safe_next
from tests.serve import http
from tests.serve.grounds import Served, bearer
from tests.serve.steps import done
from tests.servers.waiting import wait_until

PAGES = ("/", "/jobs", "/queues", "/workers", "/sources", "/dead", "/schedules", "/audit")


@pytest.fixture
def nobody(served: Served) -> Iterator[httpx.Client]:
    with http.client(base_url=served.url) as client:
        yield client


def visitor(served: Served, scope: str = "admin", token: str | None = None) -> httpx.Client:
    given = token or served.tokens[scope]
    return http.client(base_url=served.url, cookies={cookie_of(served): given})


def cookie_of(served: Served) -> str:
    return cookie_name(httpx.URL(served.url).port)


def ours(served: Served, scope: str = "admin", token: str | None = None) -> dict[str, str]:
    """What one of our pages sends along."""
    return {"X-CSRF-Token": csrf_word(token or served.tokens[scope]), "HX-Request": "true"}


@pytest.mark.parametrize("path", [*PAGES, "/jobs?state=failed", "/live", "/charts/all"])
def test_a_stranger_is_sent_to_the_sign_in_and_back(nobody: httpx.Client, path: str) -> None:
    answer = nobody.get(path)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/sign-in")
    if path != "/":
        assert httpx.URL(answer.headers["location"]).params["next"] == path


def test_a_fragment_of_a_stranger_sends_the_whole_page_there(nobody: httpx.Client) -> None:
    answer = nobody.get("/", headers={"HX-Request": "true"})
    assert (answer.status_code, answer.headers["hx-redirect"]) == (204, "/sign-in")


def test_a_token_signs_in(served: Served, nobody: httpx.Client) -> None:
    form = {"token": f"  {served.tokens['viewer']}\n", "next": "/queues"}
    answer = nobody.post("/sign-in", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/queues")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "secure" not in cookie  # it came over plain HTTP, and would not be sent again
    assert nobody.get("/queues").status_code == 200


def test_behind_tls_the_cookie_is_only_sent_over_tls(served: Served, nobody: httpx.Client) -> None:
    answer = nobody.post(
        "/sign-in", data={"token": served.tokens["viewer"]}, headers={"X-Forwarded-Proto": "https, http"}
    )
    assert "secure" in answer.headers["set-cookie"].lower()
    assert answer.headers["set-cookie"].startswith("__Host-")


@pytest.mark.parametrize("token", ["", "hf_", "hf_" + "0" * 16 + "_" + "0" * 64, "<script>alert(1)</script>"])
def test_what_is_no_token_does_not(nobody: httpx.Client, token: str) -> None:
    answer = nobody.post("/sign-in", data={"token": token, "next": "/"})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "<script>alert" not in answer.text


def test_a_worker_has_no_pages(served: Served, nobody: httpx.Client) -> None:
    assert nobody.post("/sign-in", data={"token": served.tokens["worker"]}).status_code == 403
    with visitor(served, "worker") as worker:
        assert worker.get("/").status_code == 403


@pytest.mark.parametrize("address", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", ""])
def test_after_the_sign_in_nobody_is_sent_elsewhere(served: Served, nobody: httpx.Client, address: str) -> None:
    assert safe_next(address) == "/"
    answer = nobody.post("/sign-in", data={"token": served.tokens["viewer"], "next": address})
    assert answer.headers["location"] == "/"


def test_the_cookie_is_nothing_to_the_api_and_a_bearer_nothing_to_the_pages(served: Served) -> None:
    with visitor(served) as signed_in:
        assert signed_in.get("/api/v1/jobs").status_code == 401
    with http.client(base_url=served.url, headers=bearer(served.tokens["admin"])) as program:
        assert program.get("/jobs").status_code == 303


def test_a_revoked_token_is_signed_out_at_once(served: Served) -> None:
    token = served.new_token("viewer")
    with visitor(served, token=token) as signed_in:
        assert signed_in.get("/").status_code == 200
        found = next(known for known in served.store.tokens() if known.id in token)
        served.store.revoke_token(found.name)
        assert signed_in.get("/").status_code == 303


def test_signing_out_takes_the_cookie(served: Served) -> None:
    with visitor(served) as signed_in:
        answer = signed_in.post("/sign-out", headers=ours(served))
        assert answer.status_code == 303
        assert f'{cookie_of(served)}=""' in answer.headers["set-cookie"]


def test_a_viewer_changes_nothing(served: Served, queue: str) -> None:
    [job_id] = served.enqueue(queue)
    with visitor(served, "viewer") as viewer:
        assert "read only" in viewer.get("/").text
        page = viewer.get(f"/jobs/{job_id}").text
        assert "hx-post" not in page
        for path, form in (
            (f"/jobs/{job_id}/cancel", {}),
            ("/queues/pause", {"name": queue}),
            ("/bulk/cancel", {"ids": job_id}),
            ("/sources/pause", {"name": "x"}),
            ("/schedules/pause", {"name": "x"}),
        ):
            assert viewer.post(path, data=form, headers=ours(served, "viewer")).status_code == 403, path
    assert served.store.job(job_id).state == "pending"
    assert served.store.queue_settings(queue).paused_at is None


FORGED = [
    {"HX-Request": "true"},
    {"X-CSRF-Token": "", "HX-Request": "true"},
    {"X-CSRF-Token": "0" * 64, "HX-Request": "true"},
]


@pytest.mark.parametrize("headers", FORGED)
def test_a_form_without_our_word_changes_nothing(served: Served, queue: str, headers: dict[str, str]) -> None:
    with visitor(served) as signed_in:
        assert signed_in.post("/queues/pause", data={"name": queue}, headers=headers).status_code == 403
    assert served.store.queue_settings(queue).paused_at is None


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}],
)
def test_another_site_changes_nothing_even_with_our_word(
    served: Served, queue: str, headers: dict[str, str], nobody: httpx.Client
) -> None:
    with visitor(served) as signed_in:
        answer = signed_in.post("/queues/pause", data={"name": queue}, headers={**ours(served), **headers})
        assert answer.status_code == 403
    assert served.store.queue_settings(queue).paused_at is None
    assert nobody.post("/sign-in", data={"token": served.tokens["admin"]}, headers=headers).status_code == 403


def test_nothing_is_changed_by_a_get(served: Served) -> None:
    with visitor(served) as signed_in:
        for path in ("/queues/pause", "/bulk/cancel/stop", "/sign-out", "/verify/stop"):
            assert signed_in.get(path).status_code in (404, 405), path


def test_every_page_has_the_strict_policy_and_nothing_inline(served: Served, queue: str) -> None:
    [job_id] = served.enqueue(queue)
    with visitor(served) as signed_in:
        for path in (*PAGES, f"/jobs/{job_id}", "/sign-in", "/jobs/nonsense"):
            answer = signed_in.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert not re.search(r"<script(?![^>]* src=)|\sstyle=|\son[a-z]+=|javascript:", answer.text), path


def test_every_page_keeps_its_address_to_itself(served: Served, queue: str) -> None:
    """Another site does not learn it, our own forms do: with `no-referrer` a browser would send them with no origin."""
    [job_id] = served.enqueue(queue)
    with visitor(served) as signed_in:
        for path in (*PAGES, f"/jobs/{job_id}", "/sign-in", "/jobs/nonsense", "/no/such/page", "/charts/all"):
            assert signed_in.get(path).headers.get_list("referrer-policy") == ["same-origin"], path
        posted = signed_in.post("/queues/resume", data={"name": queue}, headers=ours(served))
        assert posted.headers["referrer-policy"] == "same-origin"
    with http.client(base_url=served.url) as nobody:
        assert nobody.get("/jobs").headers["referrer-policy"] == "same-origin"


def test_static_files_are_kept_for_ever_and_nothing_else_is_served(nobody: httpx.Client) -> None:
    page = nobody.get("/sign-in").text
    found = re.findall(r'(?:src|href)="(/static/[^"]+)"', page)
    assert len(found) >= 5
    for address in found:
        answer = nobody.get(address)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    digest = found[0].split("/")[2]
    for name in ("../session.py", "%2e%2e/session.py", "vendor/../../session.py", "holdfast.css"):
        assert nobody.get(f"/static/{digest}/{name}").status_code == 404


def test_a_token_of_some_queues_sees_only_those(served: Served, queue: str) -> None:
    other = f"{queue}-other"
    [mine] = served.enqueue(queue)
    [theirs] = served.enqueue(other)
    token = served.new_token("client", queues=(queue,))
    with visitor(served, token=token) as limited:
        assert limited.get(f"/jobs/{mine}").status_code == 200
        assert limited.get(f"/jobs/{theirs}").status_code == 404
        for path in ("/", "/jobs", "/queues", "/audit", "/dead", "/workers", "/schedules"):
            assert other not in limited.get(path).text, path
        assert limited.get("/jobs", params={"queue": other}).status_code == 403
        headers = ours(served, token=token)
        assert limited.post("/queues/pause", data={"name": other}, headers=headers).status_code == 403
        assert limited.post("/verify", headers=headers).status_code == 403
        assert limited.post(f"/jobs/{theirs}/cancel", headers=headers).status_code == 404
    assert served.store.job(theirs).state == "pending"


def test_pages_of_sources_do_not_say_which_job_moved_a_breaker_to_a_token_of_some_queues(
    served: Served, queue: str
) -> None:
    served.store.set_source(queue, breaker_threshold=1)
    new = NewJob(task="send", queue=f"{queue}-other", source=queue)
    job_id = done(served.store, new, Failed(JobError("E", "no")))
    token = served.new_token("client", queues=(queue,))
    with visitor(served, token=token) as limited, visitor(served) as admin:
        wait_until(lambda: queue in admin.get("/sources").text, what="the fleet was looked at since")
        for path in ("/sources", f"/source?name={queue}"):
            assert job_id in admin.get(path).text, path
            page = limited.get(path).text
            assert "breaker opened" in page, path
            assert job_id not in page, path


def test_a_page_does_not_say_whose_replay_a_job_is_to_who_may_not_see_the_original(served: Served, queue: str) -> None:
    [original] = served.enqueue(f"{queue}-other")
    [first] = served.enqueue(queue, replay_of=original)
    second = served.store.replay(first).id
    token = served.new_token("viewer", queues=(queue,))
    with visitor(served, token=token) as limited, visitor(served) as admin:
        for job_id in (first, second):
            assert original in admin.get(f"/jobs/{job_id}").text
            assert original not in limited.get(f"/jobs/{job_id}").text
        assert first in limited.get(f"/jobs/{second}").text
        assert original not in limited.get("/jobs", params={"queue": queue}).text


def test_a_store_that_makes_no_sense_of_an_address_says_so_on_a_page(served: Served) -> None:
    with visitor(served) as signed_in:
        for path, status in (
            ("/jobs/nonsense", 422),
            ("/jobs/01000000-0000-7000-8000-000000000000", 404),
            ("/jobs?state=asleep", 422),
            ("/jobs?spec=xyz", 422),
            ("/jobs?after=nonsense", 422),
            ("/audit?event=nonsense", 422),
            ("/audit?before=nonsense", 422),
            ("/charts/all?seconds=7", 422),
            ("/sources/nobody", 404),
            ("/source?name=nobody", 404),
            ("/source?name=", 422),
            ("/source", 422),
        ):
            answer = signed_in.get(path)
            assert answer.status_code == status, path
            assert "<html" in answer.text, path


def test_the_welcome_link_signs_in(served: Served, nobody: httpx.Client) -> None:
    link = served.store.create_admin_link(3600.0)
    answer = nobody.post("/welcome", data={"code": link.text})
    assert answer.status_code == 200
    assert nobody.get("/").status_code == 200


def test_pages_of_a_job_that_was_never_there_say_nothing_of_others(served: Served, queue: str) -> None:
    served.store.enqueue(NewJob(task="secret task", queue=queue))
    token = served.new_token("viewer", queues=(f"{queue}-none",))
    with visitor(served, token=token) as limited:
        assert "secret task" not in limited.get("/jobs").text


def test_nonsense_of_a_stranger_is_refused_and_no_accident(nobody: httpx.Client) -> None:
    assert nobody.post("/sign-in", data={f"field {number}": "" for number in range(200)}).status_code == 413
    assert nobody.post("/sign-in", data={"token": "x"}, headers={"Origin": "http://["}).status_code == 403
    accept = {"Accept": "application/openmetrics-text;version=abc"}
    assert nobody.get("/metrics", headers=accept).status_code == 200


def test_a_name_with_spaces_at_its_ends_is_another_name(served: Served, queue: str) -> None:
    with visitor(served) as signed_in:
        assert signed_in.post("/queues/pause", data={"name": f"{queue} "}, headers=ours(served)).status_code == 204
    assert served.store.queue_settings(queue).paused_at is None
    assert served.store.queue_settings(f"{queue} ").paused_at is not None


def test_a_limit_of_thousands_of_digits_is_refused(served: Served, queue: str) -> None:
    with visitor(served) as signed_in:
        form = {"name": queue, "max_running": "9" * 5_000}
        assert signed_in.post("/queues/limit", data=form, headers=ours(served)).status_code == 422


HUGE = 10**400


@pytest.mark.parametrize(
    "progress", [{"done": HUGE, "total": 3}, {"done": 1.5, "total": HUGE}, {"done": -HUGE}, [HUGE]]
)
def test_a_number_beyond_all_bounds_breaks_no_page(served: Served, queue: str, progress: object) -> None:
    [job_id] = served.enqueue(queue)
    claimed = served.store.claim_job("worker", job_id)
    assert claimed is not None
    served.store.heartbeat([Beat(job_id, claimed.attempt, claimed.lease_token, "worker", progress)])
    row = WorkerRow(id=queue, host="h", pid=1, state="idle", detail={"memory_kb": HUGE})
    served.store.keep_worker(row)
    with visitor(served) as signed_in:
        for path in ("/jobs", "/workers", f"/jobs/{job_id}", "/"):
            assert signed_in.get(path).status_code == 200, path


def test_a_job_of_thousands_of_attempts_and_long_lines_has_a_page_of_bounded_size(served: Served, queue: str) -> None:
    [job_id] = served.enqueue(queue)
    now = datetime.now(UTC)
    for _turn in range(400):
        claimed = served.store.claim_job("worker", job_id)
        assert claimed is not None
        snoozed = Snoozed(0.0, "again")
        served.store.settle([Report(job_id, claimed.attempt, claimed.lease_token, snoozed, "worker")])
    text = "<&'\">" * 13_000
    served.store.append_logs([LogLine(job_id, 1, number, now, Stream.LOG, text) for number in range(300)])
    with visitor(served) as signed_in:
        page = signed_in.get(f"/jobs/{job_id}")
        assert page.text.count("snoozed") > 100
        assert len(page.content) < 4_000_000
        assert len(signed_in.get(f"/jobs/{job_id}/log").content) < 3_000_000


def test_a_bulk_run_ends_with_its_token_and_an_admin_may_stop_it(
    served: Served, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks at its token before every batch. Here the token is revoked between the first and the second."""
    revoked, step = threading.Event(), BulkRuns._step

    async def step_and_wait(runs: BulkRuns, run: BulkRun, place: str) -> str | None:
        after = await step(runs, run, place)
        while not revoked.is_set():
            await asyncio.sleep(0.01)
        return after

    monkeypatch.setattr(BulkRuns, "_step", step_and_wait)
    served.enqueue(queue, 2 * BATCH)
    token = served.new_token("client")
    with visitor(served, token=token) as client, visitor(served) as admin:
        found = next(known for known in served.store.tokens() if known.id in token)
        form = {"all": "yes", "query": f"queue={queue}"}
        answer = client.post("/bulk/replay", data=form, headers=ours(served, token=token))
        served.store.revoke_token(found.name)
        revoked.set()
        address = re.findall(r'hx-get="(/bulk/[0-9a-f]+)"', answer.text)[0]
        wait_until(lambda: "revoked" in admin.get(address).text, what="the run has ended")
        assert admin.post(f"{address}/stop", headers=ours(served)).status_code == 200


def test_a_batch_of_replays_counts_the_jobs_that_were_replayed(served: Served, queue: str) -> None:
    ids = served.enqueue(queue, 2)
    gone = "01a00000-0000-7000-8000-000000000000"
    assert _apply(served.store, "replay", [ids[0], gone, ids[1]]) == 2, "one that is gone keeps no other from it"
    replays = [job for job in served.store.jobs(queue=queue).items if job.id not in ids]
    assert sorted(job.replay_of or "" for job in replays) == sorted(ids)


def test_who_may_only_look_stops_nobody_elses_check(served: Served) -> None:
    with visitor(served, "viewer") as viewer, visitor(served) as admin:
        admin.post("/verify", headers=ours(served))
        viewer.post("/verify/stop", headers=ours(served, "viewer"))
        wait_until(lambda: "Everything holds" in admin.get("/verify").text, what="there is a verdict")
