"""Clocks of workers that jump: an hour, a day, there and back."""

from __future__ import annotations

import random

from holdfast.torture.faults.kind import Struck
from holdfast.torture.stage import Stage

JUMPS = (-86_400.0, -3_600.0, -60.0, 60.0, 3_600.0, 86_400.0)


def clock_jumped(stage: Stage, chance: random.Random) -> Struck:
    name = chance.choice(sorted(stage.clocks))
    clock, seconds = stage.clocks[name], chance.uniform(1.0, 2.0) * stage.lease_seconds
    jumps = chance.sample(JUMPS, 2)
    for jump in jumps:
        clock.jump(jump)
        stage.rest(seconds / len(jumps))
    clock.right()
    detail = f"{', '.join(f'{jump:+.0f} s' for jump in jumps)}, for {seconds:.1f} s"
    return Struck(f"the clock of {name}", detail, (stage.crew.member(name).door,))
