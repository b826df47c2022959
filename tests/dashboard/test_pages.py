"""Every page in a real browser, while jobs run: nothing is complained of, nothing is asked of another host, what
happens is seen as it happens, and what is clicked is done."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from playwright.sync_api import Page, expect

from holdfast.domain.outcome import Succeeded
from tests.dashboard.conftest import Visit
from tests.dashboard.fleet import Fleet, Names
from tests.serve.grounds import Served

PAGES = {
    "/": "Overview",
    "/jobs": "Jobs",
    "/queues": "Queues",
    "/workers": "Workers",
    "/sources": "Sources",
    "/sources/post%20office": "post office",
    "/source?name=post+office": "post office",
    "/dead": "Dead letters",
    "/schedules": "Schedules",
    "/audit": "Audit",
}
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
DESK = {"viewport": {"width": 1360, "height": 900}}


@pytest.fixture(scope="module")
def fleet(served: Served) -> Fleet:
    fleet = Fleet(served.store, Names())
    fleet.furnish()
    fleet.succeeded()
    fleet.failed()
    fleet.troubled()
    fleet.running(source="post office")
    fleet.enqueue(delay=3600)
    return fleet


def by_push_only(page: Page) -> None:
    """The page no longer looks by itself: what is new must have been told to it."""
    page.evaluate("document.body.dataset.pace = '3600000'")


@pytest.mark.parametrize("options", [DESK | {"color_scheme": "light"}, PHONE | {"color_scheme": "dark"}])
def test_every_page_opens(visit: Visit, fleet: Fleet, options: dict[str, object]) -> None:
    visitor = visit("admin", **options)
    job_id = fleet.troubled()
    for path, title in {**PAGES, f"/jobs/{job_id}": f"Job {job_id[:8]}"}.items():
        page = visitor.go(path)
        visitor.live()
        assert page.title().startswith(title)
        width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert width <= 0, f"{path} is wider than the screen"


def test_a_new_job_is_seen_as_it_comes(visit: Visit, fleet: Fleet) -> None:
    visitor = visit("viewer", **DESK)
    page = visitor.go("/jobs?task=brand+new")
    visitor.live()
    by_push_only(page)
    expect(page.get_by_text("No job is like that.")).to_be_visible()
    job_id = fleet.enqueue(task="brand new")
    expect(page.get_by_title(job_id)).to_be_visible()


def test_a_job_is_followed_to_its_end(visit: Visit, fleet: Fleet) -> None:
    visitor = visit("viewer", **DESK)
    claimed = fleet.running()
    page = visitor.go(f"/jobs/{claimed.job_id}")
    visitor.live()
    expect(page.locator("main .state").first).to_have_text("running")
    expect(page.get_by_text("30 %")).to_be_visible()
    fleet.progress(claimed, 8, 10)
    fleet.log(claimed, "half an hour to go", first=2)
    expect(page.get_by_text("80 %")).to_be_visible()
    expect(page.locator("#log").get_by_text("half an hour to go").first).to_be_visible()
    by_push_only(page)
    fleet.report(claimed, Succeeded({"answer": 42}))
    expect(page.locator("main .state").first).to_have_text("succeeded")
    expect(page.get_by_text('"answer": 42')).to_be_visible()


def test_the_timeline_shows_every_attempt_and_what_was_refused(visit: Visit, fleet: Fleet) -> None:
    job_id = fleet.troubled()
    page = visit("viewer", **DESK).go(f"/jobs/{job_id}")
    timeline = page.locator("svg.timeline")
    assert timeline.locator("rect.bar").count() == 3
    told = timeline.locator("title").all_text_contents()
    for word in ("given back", "snoozed", "refused", "failed"):
        assert any(word in text for text in told), (word, told)
    legend = page.locator(".legend").inner_text()
    assert "not accepted (refused)" in legend


def test_charts_are_drawn(visit: Visit, fleet: Fleet) -> None:
    _ = fleet
    page = visit("viewer", **DESK).go("/")
    expect(page.locator(".chart canvas")).to_have_count(3)
    with page.expect_response(lambda answer: "/charts/all?seconds=86400" in answer.url) as answered:
        page.get_by_role("button", name="24 h").click()
    assert answered.value.ok


def test_a_queue_is_paused_and_goes_on(visit: Visit, fleet: Fleet, served: Served) -> None:
    name = "to pause"
    fleet.enqueue(queue=name)
    visitor = visit("client", **DESK)
    visitor.forgiven = ("422",)  # the browser says of what makes no sense that it was refused
    page = visitor.go("/queues")
    row = page.get_by_role("row").filter(has_text=name)
    row.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="No, leave it").click()
    assert served.store.queue_settings(name).paused_at is None
    row.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(row.get_by_text("paused")).to_be_visible()
    assert served.store.queue_settings(name).paused_at is not None
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_text("paused")).not_to_be_visible()
    row.get_by_role("textbox").fill("3")
    row.get_by_role("button", name="Set").click()
    expect(page.get_by_text(f"Queue {name} runs at most 3 jobs at once")).to_be_visible()
    assert served.store.queue_settings(name).max_running == 3
    row.get_by_role("textbox").fill("many")
    row.get_by_role("button", name="Set").click()
    expect(page.get_by_text("must be a number of jobs")).to_be_visible()
    assert served.store.queue_settings(name).max_running == 3


def test_news_do_not_take_a_button_away_from_whoever_is_about_to_press_it(
    visit: Visit, fleet: Fleet, served: Served
) -> None:
    name = "pressed"
    fleet.enqueue(queue=name)
    visitor = visit("client", **DESK)
    page = visitor.go("/queues")
    visitor.live()
    page.get_by_role("row").filter(has_text=name).get_by_role("button", name="Pause").click()
    with page.expect_response(lambda answer: "hx-request" in answer.request.headers):
        fleet.enqueue(queue=name)  # while the question is open, the page changes
    expect(page.locator("#live-state.is-news")).to_have_count(0)
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.get_by_text(f"Queue {name} is paused")).to_be_visible()
    assert served.store.queue_settings(name).paused_at is not None


def test_one_job_is_cancelled_requeued_and_replayed(visit: Visit, fleet: Fleet, served: Served) -> None:
    job_id = fleet.enqueue(delay=3600)
    page = visit("client", **DESK).go(f"/jobs/{job_id}")
    state = page.locator("main .state").first
    for button, then in (("Cancel", "cancelled"), ("Requeue", "pending")):
        page.get_by_role("button", name=button).click()
        page.get_by_role("button", name="Yes, do it").click()
        expect(state).to_have_text(then)
    page.get_by_role("button", name="Replay").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.get_by_role("region", name="Replays").get_by_role("link")).to_have_count(1)
    [replay] = served.store.replays(job_id)
    assert replay.replay_of == job_id


def test_many_jobs_are_cancelled_by_choice_and_by_filter(visit: Visit, fleet: Fleet, served: Served) -> None:
    ids = [fleet.enqueue(task="many", delay=3600) for _ in range(5)]
    page = visit("client", **DESK).go("/jobs?task=many")
    for job_id in ids[:2]:
        page.get_by_role("checkbox", name=f"Choose {job_id}").check()
    expect(page.locator("[data-chosen]")).to_have_text("2")
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.get_by_text("Cancel the 2 chosen jobs?")).to_be_visible()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.get_by_role("region", name="Progress").get_by_text("done")).to_be_visible()
    states = [served.store.job(job_id).state for job_id in ids]
    assert states == ["cancelled"] * 2 + ["pending"] * 3
    page.get_by_role("button", name="Cancel all").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.get_by_role("region", name="Progress").get_by_text("3 cancelled")).to_be_visible()
    assert {served.store.job(job_id).state for job_id in ids} == {"cancelled"}


def test_dead_letters_are_requeued_by_their_cause(visit: Visit, fleet: Fleet, served: Served) -> None:
    ids = [fleet.failed(task="to requeue") for _ in range(3)]
    page = visit("client", **DESK).go("/dead")
    row = page.get_by_role("row").filter(has_text="to requeue")
    expect(row.get_by_role("cell").first).to_have_text("3")
    row.get_by_role("button", name="Requeue").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.get_by_role("region", name="Progress").get_by_text("3 requeued")).to_be_visible()
    assert {served.store.job(job_id).state for job_id in ids} == {"pending"}
    expect(row).not_to_be_visible()


def test_a_schedule_runs_now_and_is_paused(visit: Visit, fleet: Fleet, served: Served) -> None:
    page = visit("client", **DESK).go("/schedules")
    row = page.get_by_role("row").filter(has_text=fleet.names.schedule)
    before = len(served.store.ticks(fleet.names.schedule))
    row.get_by_role("button", name="Run now").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(page.get_by_text("has run now")).to_be_visible()
    assert len(served.store.ticks(fleet.names.schedule)) >= before
    row.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(row.get_by_text("paused")).to_be_visible()
    assert served.store.schedule(fleet.names.schedule).paused_at is not None
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_text("paused")).not_to_be_visible()


def test_a_source_is_resumed(visit: Visit, fleet: Fleet, served: Served) -> None:
    name = f"{fleet.names.source} 2"
    page = visit("client", **DESK).go("/sources")
    row = page.get_by_role("region", name="Sources").get_by_role("row").filter(has_text=name)
    row.get_by_role("button", name="Resume").click()
    expect(row.get_by_text("healthy", exact=True)).to_be_visible()
    assert served.store.source(name).paused_until is None
    row.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Yes, do it").click()
    expect(row.get_by_text("paused")).to_be_visible()


def test_the_whole_log_is_verified_from_the_page(visit: Visit, fleet: Fleet) -> None:
    _ = fleet
    page = visit("viewer", **DESK).go("/audit")
    page.get_by_role("button", name="Verify").click()
    expect(page.get_by_text("Everything holds.")).to_be_visible()
    expect(page.get_by_text("0 violations")).to_be_visible()


def test_the_search_knows_ids_names_and_hashes(visit: Visit, fleet: Fleet, served: Served) -> None:
    job = served.store.job(fleet.succeeded())
    assert job.spec_hash is not None
    page = visit("viewer", **DESK).go("/")
    for word, then in (
        (job.id.upper(), f"/jobs/{job.id}"),
        (fleet.names.queue, "/jobs?queue=mail"),
        (fleet.names.source, "/jobs?source=post+office"),
        (job.spec_hash[:10], f"/jobs?spec={job.spec_hash[:10]}"),
        ("no such thing", "/jobs?task=no+such+thing"),
    ):
        page.keyboard.press("/")
        page.keyboard.type(word)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**{then}")


def test_it_is_used_by_keys_alone(visit: Visit, fleet: Fleet) -> None:
    _ = fleet
    visitor = visit("viewer", **DESK)
    page = visitor.go("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.clock.set_fixed_time(datetime.now(UTC))  # the second key has to follow within 1.5 s
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    page.keyboard.press("?")
    expect(page.get_by_role("heading", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_signing_in_and_out(visit: Visit, served: Served) -> None:
    visitor = visit("nobody", **DESK)
    visitor.forgiven = ("401",)  # the browser says of a wrong token that it was one
    page = visitor.go("/queues")
    page.get_by_label("Token").fill("hf_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not whole")
    page.get_by_label("Token").fill(served.tokens["viewer"])
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/queues")
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/sign-in")
    visitor.go("/queues")
    page.wait_for_url("**/sign-in**")
