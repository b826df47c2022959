"""A real browser, and an eye on everything that it says and loads."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Response,
    expect,
    sync_playwright,
)

from holdfast.serve.dashboard.session import cookie_name
from tests.servers.waiting import DEADLINE_SECONDS

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
REQUIRED = "BROWSER_TESTS"  # =required: no browser is a failure
# A page removes a notice after 8 s. A slow machine may not have looked for it by then.
KEEP_NOTICES = """(() => {
  const later = window.setTimeout;
  window.setTimeout = (act, delay, ...rest) => later(act, delay === 8000 ? 3600000 : delay, ...rest);
})()"""


def find_browser() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        if os.environ.get(REQUIRED) == "required":
            pytest.fail("there is no chromium, and this run must have one")
        pytest.skip("there is no chromium: install Debian's package `chromium`, or put one on PATH")
    expect.set_options(timeout=DEADLINE_SECONDS * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS), timeout=DEADLINE_SECONDS * 1000)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """A page of one visitor. What must never happen is gathered in `wrong`."""

    context: BrowserContext
    page: Page
    url: str
    wrong: list[str] = field(default_factory=list)
    forgiven: tuple[str, ...] = ()

    def go(self, path: str) -> Page:
        self.page.goto(self.url + path, wait_until="load")
        return self.page

    def live(self) -> Page:
        """Once the page hears of news."""
        self.page.wait_for_selector("#live-state[data-state=live]")
        return self.page


@contextmanager
def visiting(browser: Browser, url: str, token: str | None, **options: object) -> Iterator[Watched]:
    context = browser.new_context(**options)  # type: ignore[arg-type]
    context.set_default_timeout(DEADLINE_SECONDS * 1000)
    context.add_init_script(KEEP_NOTICES)
    if token is not None:
        name = cookie_name(urlsplit(url).port)
        context.add_cookies([{"name": name, "value": token, "url": url, "httpOnly": True}])
    page = context.new_page()
    watched = Watched(context, page, url)
    _watch(watched)
    try:
        yield watched
    finally:
        context.close()
    wrong = [said for said in watched.wrong if not any(text in said for text in watched.forgiven)]
    assert not wrong, "\n".join(wrong)


def _watch(watched: Watched) -> None:
    page, host = watched.page, urlsplit(watched.url).netloc

    def asked(request: Request) -> None:
        if urlsplit(request.url).scheme in ("http", "https", "ws", "wss") and urlsplit(request.url).netloc != host:
            watched.wrong.append(f"asked another host: {request.url}")

    def answered(response: Response) -> None:
        if response.status >= 500:
            watched.wrong.append(f"{response.status} {response.url}")

    def opened(dialog: Dialog) -> None:
        watched.wrong.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def said(line: ConsoleMessage) -> None:
        if line.type in ("error", "warning"):
            watched.wrong.append(f"console: {line.text}")

    page.on("request", asked)
    page.on("response", answered)
    page.on("pageerror", lambda error: watched.wrong.append(f"script error: {error}"))
    page.on("dialog", opened)
    page.on("console", said)
