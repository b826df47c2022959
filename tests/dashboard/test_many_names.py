"""Where there are more names than anybody wants to scroll through: a page offers some, and takes any."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from holdfast.domain.job import NewJob
from holdfast.domain.manifest import TaskInfo
from holdfast.serve.dashboard.jobs import MOST_OFFERED
from tests.dashboard.conftest import Visit
from tests.dashboard.test_session import visitor
from tests.serve.grounds import Served
from tests.servers.waiting import wait_until

DESK = {"viewport": {"width": 1360, "height": 900}}
BUSY = "zz busy"  # the last by name
QUIET = "name 200"  # of those with one job each, the first that finds no room
NAMES = [f"name {number:03}" for number in range(MOST_OFFERED + 20)]


@pytest.fixture(scope="module")
def crowd(served: Served) -> Served:
    """A task, a queue and a source of every name, each with a job; one of the names has two."""
    store = served.store
    store.announce([TaskInfo(name) for name in [*NAMES, BUSY]])
    for name in [*NAMES, BUSY]:
        store.set_source(name, rate_limit_per_minute=60.0)
    store.enqueue_many([NewJob(task=name, queue=name, source=name) for name in [*NAMES, BUSY, BUSY]])
    with visitor(served) as admin:  # pages share a look at the fleet that may be a moment old
        wait_until(lambda: f'value="{BUSY}"' in admin.get("/jobs").text, what="the fleet was looked at since")
    return served


@pytest.mark.parametrize("kind", ["queue", "source", "task"])
def test_a_page_offers_so_many_and_the_busiest_are_among_them(visit: Visit, crowd: Served, kind: str) -> None:
    _ = crowd
    page = visit("viewer", **DESK).go("/jobs")
    offered = page.locator(f"#offered-{kind} option")
    expect(offered).to_have_count(MOST_OFFERED)
    names = [one.get_attribute("value") for one in offered.all()]
    assert names == sorted(NAMES[:MOST_OFFERED] if kind == "task" else [*NAMES[: MOST_OFFERED - 1], BUSY])


@pytest.mark.parametrize("kind", ["Queue", "Source", "Task"])
def test_any_other_can_be_typed_and_stays_chosen(visit: Visit, crowd: Served, kind: str) -> None:
    _ = crowd
    page = visit("viewer", **DESK).go("/jobs")
    assert page.locator(f"#offered-{kind.lower()} option[value='{QUIET}']").count() == 0
    page.get_by_label(kind, exact=True).fill(QUIET)
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{kind.lower()}=name+200**")
    expect(page.get_by_label(kind, exact=True)).to_have_value(QUIET)
    expect(page.get_by_role("region", name="Jobs").locator("tbody tr")).to_have_count(1)
