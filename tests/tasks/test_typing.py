"""What a type checker knows about tasks. mypy reads this file: an ignore that is not needed is an error there."""

from typing import Any, assert_type

from holdfast import App, AsyncTask, CommandTask, Context, FunctionTask, Handle, TaskGroup

app = App("sqlite:///nowhere/never-opened.db")
group = TaskGroup("group")


@app.task
def add(a: int, b: int = 2) -> int:
    return a + b


@app.task(queue="sums", timeout="1m")
def with_options(a: int) -> str:
    return str(a)


@group.task
async def fetch(url: str) -> bytes:
    return url.encode()


@app.task
def with_context(ctx: Context, a: int) -> int:
    return a + ctx.attempt


@app.task(priority=5)
async def async_with_context(ctx: Context, a: int) -> float:
    return float(a + ctx.attempt)


command = app.command("convert", ["convert"])


async def what_is_known() -> None:
    assert_type(add(1, 2), int)
    assert_type(add.enqueue(1, b=2), Handle[int])
    assert_type(add.enqueue(1).result(), int)
    assert_type(await add.aenqueue(1), Handle[int])
    assert_type(add.using(priority=5).enqueue(1), Handle[int])
    assert_type(add.enqueue_many([(1, 2)]), list[Handle[int]])
    assert_type(with_options.enqueue(1).result(), str)
    assert_type(await fetch("x"), bytes)
    assert_type(await fetch.enqueue("x").aresult(), bytes)
    assert_type(with_context.enqueue(1), Handle[int])
    assert_type(with_context.enqueue(a=1), Handle[int])
    assert_type(await async_with_context.aenqueue(1), Handle[float])
    assert_type(command.enqueue(anything=[1]), Handle[Any])


async def what_is_refused() -> None:
    add.enqueue("1")  # type: ignore[arg-type]
    add.enqueue()  # type: ignore[call-arg]
    add.enqueue(1, c=2)  # type: ignore[call-arg]
    await add.aenqueue(1, b="2")  # type: ignore[arg-type]
    with_context.enqueue("1")  # type: ignore[arg-type]
    fetch.enqueue(1)  # type: ignore[arg-type]
    add.using(colour="red")  # type: ignore[call-arg]
    add.using(priority="high")  # type: ignore[arg-type]
    app.task(queue=5)  # type: ignore[call-overload]


def test_what_the_checker_is_told_is_what_is_there() -> None:
    assert type(add) is FunctionTask
    assert type(fetch) is AsyncTask
    assert type(command) is CommandTask
    assert with_context(1) == 2, "called directly outside a job, the context is a silent one of attempt 1"
