"""Whatever a queue, a task, a worker, a source, an error or a log line is called, it is text and nothing else."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import Visit
from tests.dashboard.fleet import Fleet, Names
from tests.serve.grounds import Served

CORPUS = (
    "<script>window.hacked=1</script>",
    '"><img src=x onerror=window.hacked=1>',
    "'><svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
    "{{ 7*7 }}{% raw %}${7*7}",
    "</title></script><iframe srcdoc='<script>parent.hacked=1</script>'>",
    "<a hx-get=/sign-out hx-trigger=load data-hx-on:load='window.hacked=1'>x</a>",
    "x' hx-on:load='window.hacked=1' y='",
    "\u202egnp.exe\u2066 \u200b",
    "../../../etc/passwd?a=b#c&d=%00",
)
PAGES = ("/", "/jobs", "/queues", "/workers", "/sources", "/dead", "/schedules", "/audit")


def furnished(served: Served, text: str) -> list[str]:
    """Everything is called that, as far as names may be; jobs with every ending are returned."""
    name = text if text.isprintable() else "plain"
    fleet = Fleet(served.store, Names(queue=name, task=name, source=name, worker=name, schedule=name, text=text))
    fleet.furnish()
    shown = [fleet.succeeded(), fleet.troubled(), fleet.running(source=name).job_id]
    fleet.failed()
    served.store.replay(shown[0])
    return shown


def test_it_stays_text(visit: Visit, served: Served) -> None:
    jobs = [job_id for text in CORPUS for job_id in furnished(served, text)]
    visitor = visit("admin", viewport={"width": 1360, "height": 900})
    for path in [*PAGES, *(f"/jobs/{job_id}" for job_id in jobs)]:
        page = visitor.go(path)
        assert page.evaluate("window.hacked") is None
        assert page.locator("main :is(script, iframe, img, object, embed, [onerror], [onload])").count() == 0
        assert page.locator("main [hx-get='/sign-out']").count() == 0
    for path in PAGES:  # and when it comes as news
        visitor.go(path)
        visitor.live()
        with visitor.page.expect_response(lambda answer: "hx-request" in answer.request.headers):
            served.enqueue("news")
        assert visitor.page.evaluate("window.hacked") is None


@pytest.mark.parametrize("text", CORPUS[:4])
def test_its_own_page_and_its_actions_find_it(visit: Visit, served: Served, text: str) -> None:
    name = f"{text} own"
    fleet = Fleet(served.store, Names(queue=name, task=name, source=name))
    served.store.set_source(name, rate_limit_per_minute=60.0)
    fleet.enqueue(source=name)
    visitor = visit("admin", viewport={"width": 1360, "height": 900})
    page = visitor.go("/queues")
    row = page.get_by_role("row").filter(has_text=name)
    row.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Yes, do it").click()
    row.get_by_role("button", name="Resume").wait_for()
    assert served.store.queue_settings(name).paused_at is not None
    row.get_by_role("link").click()
    page.wait_for_url("**/jobs?queue=*")
    assert page.locator("tbody tr").count() == 1
    page = visitor.go("/sources")
    page.get_by_role("link", name=name).first.click()
    # The heading of the page before it may still be there.
    expect(page.get_by_role("heading", level=1)).to_have_text(re.compile(rf"^\s*{re.escape(name[:20])}"))


@pytest.mark.parametrize("name", [".", "..", "%2e%2e", "a/../b", "/", "a?name=b&after=c#d"])
def test_a_source_whose_name_is_a_step_in_a_path_has_a_page_that_stays_alive(
    visit: Visit, served: Served, name: str
) -> None:
    served.store.set_source(name, rate_limit_per_minute=60.0)
    visitor = visit("admin", viewport={"width": 1360, "height": 900})
    page = visitor.go("/sources")
    link = page.get_by_role("region", name="Sources").get_by_role("link", name=name, exact=True)
    with page.expect_response(lambda answer: "/charts/source?" in answer.url) as charts:
        link.click()
    assert charts.value.ok
    assert page.get_by_role("heading", level=1).inner_text() == name
    visitor.live()
    with page.expect_response(lambda answer: "hx-request" in answer.request.headers) as refreshed:
        served.enqueue("news")
    assert refreshed.value.ok
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Yes, do it").click()
    page.get_by_role("button", name="Resume").wait_for()
    assert served.store.source(name).paused_by == "operator"
