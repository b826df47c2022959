"""Names, groups, duplicates, commands: what an app knows after its modules are imported."""

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from holdfast import App, ConfigurationError, InvalidInput, TaskGroup
from holdfast.domain.manifest import Kind, OnLostLease, TaskInfo


@pytest.fixture
def app() -> App:
    return App("sqlite:///nowhere/never-opened.db")


def test_a_task_is_called_as_its_function_is(app: App) -> None:
    @app.task
    def charge() -> None: ...

    @app.task(name="pay.out", queue="money")
    def other() -> None: ...

    assert list(app.tasks) == ["charge", "pay.out"]
    assert app.tasks["charge"] is charge
    assert charge.__name__ == "charge"


def test_a_group_adds_its_prefix_and_its_defaults(app: App) -> None:
    billing = app.group("billing", queue="money", timeout="1m", no_retry=KeyError)
    cards = billing.group("cards", priority=5)

    @billing.task(timeout=None)
    def charge() -> None: ...

    @cards.task(queue="cards")
    async def verify() -> None: ...

    convert = cards.command("convert", ["convert", "{payload}"])

    assert list(app.tasks) == ["billing.charge", "billing.cards.verify", "billing.cards.convert"]
    assert app.manifest() == [
        TaskInfo("billing.charge", defaults={"queue": "money"}),
        TaskInfo(
            "billing.cards.verify",
            kind=Kind.ASYNC,
            defaults={"queue": "cards", "timeout_seconds": 60.0, "priority": 5},
        ),
        TaskInfo(
            "billing.cards.convert",
            kind=Kind.COMMAND,
            defaults={"queue": "money", "timeout_seconds": 60.0, "priority": 5},
        ),
    ]
    assert charge.no_retry == verify.no_retry == (KeyError,)
    assert convert.name == "billing.cards.convert"


def test_a_group_may_be_written_before_there_is_an_app(app: App) -> None:
    inner, outer = TaskGroup("inner", priority=1), TaskGroup("outer", queue="q", priority=2)

    @inner.task
    def run() -> None: ...

    fast = run.using(priority=9)
    assert run.name == "inner.run"
    with pytest.raises(ConfigurationError, match=r"task inner\.run .* app\.include\(group\)"):
        run.enqueue()

    outer.include(inner)
    app.include(outer)

    @inner.task
    def late() -> None: ...

    assert list(app.tasks) == ["outer.inner.run", "outer.inner.late"]
    assert fast.name == "outer.inner.run"
    assert app.manifest()[0].defaults == {"queue": "q", "priority": 1}


def test_a_group_belongs_to_one_place(app: App) -> None:
    group = TaskGroup("g")
    app.include(group)
    with pytest.raises(ConfigurationError, match="group g is already included"):
        app.include(group)
    loop = TaskGroup("loop")
    with pytest.raises(ConfigurationError, match="in itself"):
        loop.group("inner").include(loop)
    with pytest.raises(InvalidInput, match="group: must be a TaskGroup"):
        app.include(app)  # type: ignore[arg-type]


def test_two_tasks_of_one_name_are_an_error_that_names_both(app: App) -> None:
    @app.task
    def run() -> None: ...

    with pytest.raises(ConfigurationError) as caught:
        app.task(name="run")(lambda: None)
    assert str(caught.value).count("test_registering.py:") == 2
    with pytest.raises(ConfigurationError, match="two tasks are called run"):
        app.command("run", ["true"])


def test_two_groups_of_one_name_share_their_names(app: App) -> None:
    def run() -> None: ...

    first, second = app.group("g"), TaskGroup("g")
    first.task(run)
    second.task(run)
    with pytest.raises(ConfigurationError, match=r"two tasks are called g\.run"):
        app.include(second)


def test_what_cannot_be_a_task_is_refused(app: App) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def stream() -> AsyncIterator[int]:
        yield 1

    def many(*items: int) -> None: ...

    wrong: list[tuple[Any, str]] = [
        (numbers, "generator"),
        (stream, "generator"),
        (many, r"\*items"),
        (lambda: None, "name="),
        (functools.partial(print), "name="),
        (App, "is a function"),
        (5, "is a function"),
    ]
    for function, said in wrong:
        with pytest.raises(ConfigurationError, match=said):
            app.task(function)
    with pytest.raises(InvalidInput, match="name: must not be empty"):
        app.task(name=" ")
    with pytest.raises(InvalidInput, match="name: must be at most 200"):
        app.group("x" * 150).group("y" * 100).task(test_what_cannot_be_a_task_is_refused)
    assert not app.tasks


def test_options_are_checked_when_the_task_is_written(app: App) -> None:
    with pytest.raises(InvalidInput, match="timeout: "):
        app.task(timeout="soon")
    with pytest.raises(InvalidInput, match=r"retries: unknown option; known are lease, max_attempts.*no_retry"):
        app.task(retries=3)  # type: ignore[call-overload]
    with pytest.raises(InvalidInput, match="priority: "):
        app.group("g", priority=1000)
    with pytest.raises(InvalidInput, match="lease: "):
        App(lease=0)


def test_a_task_says_what_its_lost_lease_means(app: App) -> None:
    @app.task(on_lost_lease="continue", version=2)
    def run() -> None: ...

    assert app.manifest() == [TaskInfo("run", "2", on_lost_lease=OnLostLease.CONTINUE)]


def test_a_command_keeps_how_it_is_started(app: App) -> None:
    convert = app.command(
        "convert",
        ["convert", "{payload}"],
        env={"A": "b"},
        cwd="/tmp",
        permanent_exit_codes=[2, 3],
        max_output_bytes=10,
    )

    command = convert.command
    assert (command.argv, command.env, command.cwd) == (("convert", "{payload}"), {"A": "b"}, "/tmp")
    assert (command.permanent_exit_codes, command.max_output_bytes) == ((2, 3), 10)
    assert app.command("other", ["true"]).command.permanent_exit_codes == (65,)


@pytest.mark.parametrize(
    ("argv", "options", "field"),
    [
        ("convert a b", {}, "argv"),
        ([], {}, "argv"),
        (None, {}, "argv"),
        ([""], {}, "argv[0]"),
        (["a", 5], {}, "argv[1]"),
        (["a\x00"], {}, "argv[0]"),
        (["a"], {"env": {"A": 5}}, "env.A"),
        (["a"], {"env": {"A=B": "5"}}, "env"),
        (["a"], {"env": ["A"]}, "env"),
        (["a"], {"cwd": "\x00"}, "cwd"),
        (["a"], {"permanent_exit_codes": 65}, "permanent_exit_codes"),
        (["a"], {"permanent_exit_codes": (0,)}, "permanent_exit_codes"),
        (["a"], {"max_output_bytes": "1M"}, "max_output_bytes"),
        (["a"], {"no_retry": KeyError}, "no_retry"),
    ],
)
def test_a_wrong_command_is_named(app: App, argv: Any, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        app.command("convert", argv, **options)
    assert caught.value.field == field
    assert not app.tasks


def test_a_store_is_named_by_a_url_and_nothing_is_asked_of_it_yet() -> None:
    assert App("https://jobs.example.com", token="hf_secret").location == "https://jobs.example.com"
    with pytest.raises(InvalidInput, match="store: must be the URL of a database or a control plane"):
        App(5)  # type: ignore[arg-type]
