"""The timeline in characters: what it looks like, and that nothing is lost on the way."""

from datetime import datetime

from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.timeline import DRAWN, PLAIN, Characters, draw
from holdfast.domain.job import AuditEvent
from holdfast.domain.timeline import LETTERS, lay_out
from holdfast.domain.views import Refusal
from tests.unit.test_timeline import LOST_AND_DONE, after, life, lives, refusal


def picture(
    events: list[AuditEvent],
    width: int = 60,
    now: float = 0.0,
    refusals: tuple[Refusal, ...] = (),
    characters: Characters = DRAWN,
) -> str:
    return "\n".join(line.plain.rstrip() for line in draw(events, [], refusals, after(now), width, characters))


def test_a_lost_lease_a_refused_zombie_and_the_worker_that_finished() -> None:
    assert picture(LOST_AND_DONE, refusals=(refusal("ada", 15, 15),)) == (
        "timeline  2 attempts in 21 s, from 2026-03-01T12:00:00Z\n"
        "job  E·                           ··\n"
        "ada    1━━━━━━━━━━━━━━━━━━━━━━━━━L          N\n"
        "bob                                 2━━━━━━━━━━━━━━━━━━━━━━S\n"
        "     0            +5 s          +10 s         +16 s    +21 s\n"
        "     E enqueued  S succeeded  L lease lost\n"
        "     N not accepted (refused)"
    )


def test_a_long_wait_is_cut_short_with_a_mark_and_a_running_attempt_is_open() -> None:
    retried = life(
        (0, "enqueued", None), (0, "claimed", "ada"), (10, "retry_scheduled", "ada"), (7210, "claimed", "ada"),
    )  # fmt: skip
    assert picture(retried, now=7220) == (
        "timeline  2 attempts in 2 h, from 2026-03-01T12:00:00Z\n"
        "job  E             ·············//············\n"
        "ada  1━━━━━━━━━━━━R                           2━━━━━━━━━━━━▶\n"
        "     0             +10 s        //            +2 h\n"
        "     E enqueued  R failed, will retry  ━▶ still runs\n"
        "     // a wait cut short"
    )


def test_request_to_stop_is_drawn_on_the_bar_of_its_attempt_also_at_the_very_end() -> None:
    again_at_once = life(
        (0, "enqueued", None), (1, "claimed", "ada"), (11, "cancel_requested", "olga"), (11, "cancelled", "ada"),
        (11, "requeued", "olga"), (11, "claimed", "ada"), (21, "succeeded", "ada"),
    )  # fmt: skip
    lane = picture(again_at_once).splitlines()[2]
    assert lane.replace("━", "") == "ada    1!X2S"
    assert "!X2" in lane, "and not behind the 2, on the bar of the next attempt"


def test_a_terminal_without_the_characters_gets_others() -> None:
    plain = picture(life((0, "enqueued", None), (5, "claimed", "ada")), 40, 10, characters=PLAIN)
    assert plain.isascii()
    assert "ada                   1================>" in plain


def test_of_very_many_attempts_the_last_ones_are_drawn_and_it_says_so() -> None:
    steps: list[tuple[float, str, str | None]] = [(0, "enqueued", None)]
    for turn in range(100):
        steps += [(turn * 10 + 1, "claimed", f"worker-{turn}"), (turn * 10 + 2, "snoozed", f"worker-{turn}")]
    drawn = picture(life(*steps), 60, 1000)
    assert "timeline  the last 14 of 100 attempts" in drawn
    assert "… 2 workers before these" in drawn
    assert drawn.count("━Z") == 12


def test_a_worker_with_a_hostile_name_is_shown_and_not_obeyed() -> None:
    drawn = picture(life((0, "enqueued", None), (1, "claimed", "a\x1b[2J\u202e\nb")), 80, 5)
    assert r"a\x1b[2J\u202e b" in drawn
    assert "\x1b" not in drawn
    assert "\u202e" not in drawn


def test_a_job_without_a_history_has_no_picture() -> None:
    assert picture([]) == ""


@given(lives(), st.integers(30, 160), st.floats(0.0, 1e6))
def test_every_end_and_every_mark_has_its_letter_and_no_line_is_too_wide(
    events: list[AuditEvent], width: int, now: float
) -> None:
    moment: datetime = after(now)
    lines = draw(events, [], [], moment, width)
    timeline = lay_out(events, (), (), moment)
    assert timeline is not None

    assert all(line.cell_len <= width for line in lines)
    count = 1 + len(timeline.lanes)
    names = max(len("job"), *(len(lane.worker or "by hand") for lane in timeline.lanes), 0)
    drawn = "".join(line.plain[names + 2 :] for line in lines[1 : 1 + count])
    for kind in set(timeline.kinds) - {"claimed"}:
        expected = sum(mark.kind == kind for mark in timeline.all_marks)
        assert drawn.count(LETTERS[kind]) == expected, f"{kind}\n" + "\n".join(line.plain for line in lines)
