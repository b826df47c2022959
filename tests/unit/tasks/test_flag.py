"""An event that is made only when somebody waits for it."""

import threading

from holdfast.tasks.flag import Flag
from tests.servers.waiting import DEADLINE_SECONDS, wait_until


def test_it_is_set_for_whoever_comes_later() -> None:
    flag = Flag()
    assert not flag.is_set()
    assert not flag.wait(0)
    flag.set()
    assert flag.is_set()
    assert flag.wait()


def test_everybody_who_waits_is_woken() -> None:
    flag = Flag()
    woken: list[bool] = []

    def wait() -> None:
        woken.append(flag.wait(DEADLINE_SECONDS))

    for _ in range(5):
        threading.Thread(target=wait, daemon=True).start()
    flag.set()
    wait_until(lambda: woken == [True] * 5, what="all of them are awake")
