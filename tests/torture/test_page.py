"""The report as a file: it says the verdict first, loads nothing, and whatever the run called its parts is text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from html.parser import HTMLParser
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from holdfast.serve.dashboard.words import seen
from holdfast.torture.page import page
from holdfast.torture.page_drawing import draw
from holdfast.torture.page_scale import MOST_BINS, MOST_TICKS, bins
from holdfast.torture.results import Result, Strike
from tests.dashboard.browser import chromium, visiting
from tests.dashboard.test_hostile_names import CORPUS
from tests.torture.sample_result import FAULTS, LEFT_OUT, RULES, empty_result, sample_result


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@dataclass
class Parsed(HTMLParser):
    """What is there, without its text: every element with the names of its attributes; and the text."""

    elements: list[tuple[str, ...]] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, *(name for name, _ in attrs)))
        self.values += [value or "" for name, value in attrs if name in ("href", "src", "action", "xlink:href")]

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


def parsed(result: Result) -> Parsed:
    found = Parsed()
    found.feed(page(result))
    return found


def renamed(value: Any, name: Callable[[], str]) -> Any:
    """The same result with every string in it, wherever it is, called something else."""
    if isinstance(value, str):
        return name()
    if isinstance(value, dict):
        return {name(): renamed(inner, name) for inner in value.values()}
    if isinstance(value, tuple):
        return tuple(renamed(inner, name) for inner in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{item.name: renamed(getattr(value, item.name), name) for item in fields(value)})
    return value


def called(text: str) -> Result:
    """Every string is this text, with a number so that no two are the same."""
    numbers = count()
    result: Result = renamed(sample_result(seconds=60, strikes=20, broken=True), lambda: f"{text}{next(numbers)}")
    return result


@pytest.fixture(scope="module")
def plain() -> Parsed:
    return parsed(called("plain"))


@pytest.mark.parametrize("text", CORPUS)
def test_whatever_its_parts_are_called_the_page_has_the_same_elements(plain: Parsed, text: str) -> None:
    hostile = parsed(called(text))
    assert hostile.elements == plain.elements
    assert hostile.values == plain.values
    assert seen(text)[:20] in hostile.text


def test_half_a_character_and_a_zero_byte_do_not_keep_it_from_being_written() -> None:
    written = page(called("\ud800\x00\x1b"))
    assert b"\\ud800" in written.encode()
    assert not re.search("[\x00\x1b]", written)


def test_it_says_every_fault_every_rule_every_door_and_what_was_left_out() -> None:
    result = sample_result()
    text = parsed(result).text
    names = (*FAULTS, *LEFT_OUT, *LEFT_OUT.values(), *RULES)
    for name in (*names, *result.load.by_door, *result.load.by_task, *result.versions, result.command):
        assert name in text


def test_violations_come_first_with_the_seed_the_command_and_the_shortest_history() -> None:
    result = sample_result(seed=4711, broken=True)
    text = parsed(result).text.split("4711 · leases of")[1]
    assert (
        text.index("4 violations of 3 rules") < text.index("Seed 4711. To run it again") < text.index("What does not")
    )
    shown = text.split("What does not hold")[1].split("The whole run")[0]
    for rule in {broken.rule for broken in result.broken}:
        assert rule in shown
    assert shown.count(result.broken[0].history[1]) == 1
    assert "No violation" not in text


def test_a_run_that_holds_says_so_and_shows_no_cases() -> None:
    text = parsed(sample_result()).text
    assert "No violation: " in text
    assert "What does not hold" not in text


def test_a_rule_that_was_held_against_nothing_is_not_said_to_hold() -> None:
    text = parsed(replace(empty_result(), rules_checked={"an untried rule": 0})).text
    assert "not triedan untried rule" in text


def test_a_recovery_past_its_bound_is_marked_and_the_bound_stays_in_the_picture() -> None:
    late = replace(empty_result(), strikes=(Strike("kill", "w", 1.0, 1.0, "", 12.0, 9.0),), seconds=60.0)
    assert "1 later than its bound" in parsed(late).text
    assert page(late).count('class="is-late"') == 1
    in_time = replace(late, strikes=(Strike("kill", "w", 1.0, 1.0, "", 8.0, 9.0),))
    assert 'class="is-late"' not in page(in_time)


@pytest.mark.parametrize("seconds", [1, 60, 1_800, 9_000])
def test_the_drawing_has_no_more_steps_and_ticks_than_a_screen_can_show(seconds: int) -> None:
    result = sample_result(seconds=seconds, strikes=0)
    drawing = draw(result)
    assert 0 < len(drawing.slots) <= MOST_BINS
    assert 0 < len(drawing.ticks) <= MOST_TICKS + 1


def test_no_job_is_lost_between_the_seconds_and_the_steps_that_are_drawn() -> None:
    result = sample_result(seconds=1_790)
    steps = bins(result.timeline, len(result.timeline))
    lengths = [len([s for s in result.timeline if step.at <= s.at < step.at + step.seconds]) for step in steps]
    drawn = sum(step.ended * length for step, length in zip(steps, lengths, strict=True))
    assert round(drawn) == sum(second.ended for second in result.timeline)
    assert sum(step.lost for step in steps) == sum(second.lost for second in result.timeline)


def test_everything_that_is_drawn_is_inside_the_picture() -> None:
    result = sample_result(seconds=60, strikes=40)
    drawing = draw(replace(result, drained_seconds=None))
    for box in (*drawing.boxes, *drawing.bands, *drawing.slots):
        assert float(box.x.rstrip("%")) >= 0
        assert float(box.x.rstrip("%")) + float(box.width.rstrip("%")) <= 100.2
        assert 0 <= box.y <= box.y + box.height <= drawing.height


RUNS: dict[str, Callable[[], Result]] = {
    "of half an hour": sample_result,
    "of a minute that failed": lambda: sample_result(seconds=60, strikes=22, broken=True),
    "in which nothing happened": empty_result,
    "called hostile names": lambda: called(CORPUS[1]),
}


@pytest.mark.parametrize("run", RUNS)
def test_a_browser_shows_it_as_it_is_meant_and_has_nothing_to_complain_about(
    browser: Browser, tmp_path: Path, run: str
) -> None:
    (tmp_path / "report.html").write_text(page(RUNS[run]()), encoding="utf-8")
    with visiting(browser, tmp_path.as_uri(), None) as visitor:
        shown = visitor.go("/report.html")
        assert shown.locator("h1").first.is_visible()
        assert shown.evaluate("getComputedStyle(document.querySelector('.panel')).borderRadius") == "10px"
        assert shown.evaluate("window.hacked") is None
        assert shown.locator("script, iframe, object, embed, form, a, [style], [onerror], [onload]").count() == 0
        for width in (390, 1360):
            shown.set_viewport_size({"width": width, "height": 900})
            assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_its_policy_lets_no_script_no_style_and_no_picture_in(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page(empty_result()), encoding="utf-8")
    with visiting(browser, tmp_path.as_uri(), None) as visitor:
        shown = visitor.go("/report.html")
        shown.evaluate("""() => {
            document.body.insertAdjacentHTML('beforeend', '<p id=p style="color:rgb(1,2,3)">x</p><img src=x.png>');
            const script = document.createElement('script');
            script.textContent = 'window.hacked = 1';
            document.body.append(script);
        }""")
        assert shown.evaluate("getComputedStyle(document.getElementById('p')).color") != "rgb(1, 2, 3)"
        assert shown.evaluate("window.hacked") is None
        assert all("Content Security Policy" in said for said in visitor.wrong)
        visitor.forgiven = ("Content Security Policy",)


def test_it_is_dark_where_the_reader_likes_it_dark(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page(empty_result()), encoding="utf-8")
    with visiting(browser, tmp_path.as_uri(), None, color_scheme="light") as visitor:
        shown = visitor.go("/report.html")
        ground = "getComputedStyle(document.body).backgroundColor"
        assert shown.evaluate(ground) == "rgb(244, 246, 248)"
        shown.emulate_media(color_scheme="dark")
        assert shown.evaluate(ground) == "rgb(11, 18, 24)"
