"""The demo's own app, as a user would write it. The runners of the demo's workers import it."""

from __future__ import annotations

import os
import signal
from enum import StrEnum

from holdfast import App, Cancel, Context, Permanent, Snooze

SNOOZE_SECONDS = 0.2

app = App()


class Act(StrEnum):
    """What a job does when it is run for the first time; the second time it always succeeds."""

    PLAIN = "plain"
    FLAKY = "flaky"
    CRASH = "crash"
    SNOOZE = "snooze"
    ENDLESS = "endless"
    BROKEN = "broken"


@app.task(name="demo.square")
def square(number: int, act: Act, context: Context) -> dict[str, int]:
    match act if context.attempt == 1 else Act.PLAIN:
        case Act.FLAKY:
            raise ConnectionError("the network blinked")
        case Act.CRASH:
            os.kill(os.getpid(), signal.SIGKILL)
        case Act.SNOOZE:
            raise Snooze(SNOOZE_SECONDS, "not ready yet")
        case Act.BROKEN:
            raise Permanent("no number of tries will help")
        case Act.ENDLESS:
            context.wait_cancelled()
            raise Cancel("asked to stop")
        case _:
            pass
    return {"square": number**2}
