"""What the workers of both walks run."""

from __future__ import annotations

import time

from holdfast import App, Context

app = App()


@app.task
def short(number: int) -> int:
    time.sleep(0.02)
    return number * number


@app.task
def slow(ctx: Context) -> str:
    """Long enough to be killed over it; whoever does it again is quick."""
    ctx.wait_cancelled("60s" if ctx.attempt == 1 else "0.1s")
    return f"by attempt {ctx.attempt}"
