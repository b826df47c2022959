"""Results and files of jobs, in one process: what fits in the row is there, the rest is a file, both are read alike."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    App,
    ArtifactMissing,
    ArtifactRef,
    ArtifactUnavailable,
    ConfigurationError,
    Context,
    Handle,
    InvalidInput,
    JobFailed,
    Permanent,
)
from holdfast.domain.artifacts import INLINE_RESULT_BYTES, MOST_ARTIFACTS
from holdfast.domain.lifecycle import State
from holdfast.tasks import placing
from holdfast.testing import fresh_store
from tests.artifacts.names import BAD_NAMES
from tests.servers.waiting import DEADLINE_SECONDS

BIG = "x" * INLINE_RESULT_BYTES


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/jobs.db", artifacts=tmp_path / "files")
    yield app
    app.close()


@dataclass
class Row:
    name: str
    at: datetime


def test_a_result_is_inline_up_to_the_limit_and_a_file_beyond_it(app: App) -> None:
    @app.task
    def text(character: str, count: int, padding: int) -> str:
        return character * count + "x" * padding

    room = INLINE_RESULT_BYTES - 2  # two quotes
    jobs = []
    for character in ("x", "é", "名", "😀"):
        count, padding = divmod(room, len(character.encode()))
        fits, over = text.enqueue(character, count, padding), text.enqueue(character, count, padding + 1)
        jobs.append((fits, over, character * count + "x" * padding))
    app.work()
    for fits, over, expected in jobs:
        assert fits.job().result == fits.result() == expected
        assert (fits.job().result_ref, fits.artifacts()) == (None, [])
        assert over.job().result is None
        assert over.job().result_ref == f"{over.id}/1/result.json"
        assert over.result() == expected + "x"
        [artifact] = over.artifacts()
        assert (artifact.name, artifact.media_type) == ("result.json", "application/json")
        assert artifact.bytes == INLINE_RESULT_BYTES + 1


def test_a_large_result_comes_back_as_the_annotation_has_it(app: App) -> None:
    now = datetime(2026, 1, 2, tzinfo=UTC)

    @app.task
    def rows(count: int) -> list[Row]:
        return [Row(f"row {number}", now) for number in range(count)]

    @app.task
    async def arows(count: int) -> list[Row]:
        return [Row(f"row {number}", now) for number in range(count)]

    app.command("print", ["sh", "-c", 'printf \'{"holdfast": "result", "result": "%0300000d"}\\n\' 7'])
    handles = [rows.enqueue(3), rows.enqueue(8000), arows.enqueue(8000)]
    command = app.tasks["print"].enqueue()
    app.work()
    assert handles[0].job().result_ref is None
    assert all(handle.job().result_ref for handle in (handles[1], handles[2], command))
    assert handles[1].result() == handles[2].result() == [Row(f"row {number}", now) for number in range(8000)]
    assert asyncio.run(handles[1].aresult())[0] == Row("row 0", now)
    assert command.result() == "0" * 299_999 + "7"


SAVED: dict[str, tuple[Any, str, Any]] = {
    "bytes": (b"\x00\xff", "application/octet-stream", b"\x00\xff"),
    "bytearray": (bytearray(b"ab"), "application/octet-stream", b"ab"),
    "text": ("ünï", "text/plain; charset=utf-8", "ünï"),
    "json": ({"a": [1, None]}, "application/json", {"a": [1, None]}),
    "null": (None, "application/json", None),
    "converted": (
        Row("a", datetime(2026, 1, 2, tzinfo=UTC)),
        "application/json",
        {"name": "a", "at": "2026-01-02T00:00:00Z"},
    ),
}


def test_what_is_saved_and_returned_is_the_result(app: App) -> None:
    @app.task
    def save(ctx: Context, kind: str) -> ArtifactRef:
        return ctx.save("out/it", SAVED[kind][0])

    handles = {kind: save.enqueue(kind) for kind in SAVED}
    app.work()
    for kind, (_data, media_type, read) in SAVED.items():
        handle = handles[kind]
        assert handle.job().result is None
        assert handle.job().result_ref == f"{handle.id}/1/out/it"
        [artifact] = handle.artifacts()
        assert artifact.media_type == media_type
        assert handle.result() == read
        assert app.handle(handle.id).result() == read


def test_a_reference_among_other_things_and_one_of_another_job_are_text(app: App) -> None:
    @app.task
    def produce(ctx: Context) -> dict[str, Any]:
        return {"page": ctx.save("page.html", "<p>")}

    @app.task
    def pass_on(page: str) -> str:
        return ArtifactRef(page)

    first = produce.enqueue()
    app.work()
    second = pass_on.enqueue(ArtifactRef(first.result()["page"]))
    app.work()
    assert second.job().result == f"{first.id}/1/page.html" == first.result()["page"]
    assert (second.job().result_ref, second.artifacts()) == (None, [])


def test_files_of_a_failed_attempt_are_there(app: App) -> None:
    @app.task(max_attempts=1)
    def look(ctx: Context) -> None:
        ctx.save("page.html", "<p>an unexpected page</p>")
        raise Permanent("unexpected")

    handle = look.enqueue()
    app.work()
    with pytest.raises(JobFailed):
        handle.result()
    assert handle.read("page.html") == b"<p>an unexpected page</p>"


def test_no_name_escapes(app: App, tmp_path: Path) -> None:
    refused: list[tuple[str, str]] = []

    @app.task
    def save(ctx: Context) -> None:
        for name in BAD_NAMES:
            try:
                ctx.save(name, b"x")
            except InvalidInput as error:
                refused.append((error.field, name))

    handle = save.enqueue()
    app.work()
    assert (handle.result(), handle.artifacts()) == (None, [])
    assert refused == [("name", name) for name in BAD_NAMES]
    assert sorted(path.name for path in tmp_path.iterdir() if "jobs.db" not in path.name) == []


def test_one_name_is_one_file_wherever_the_job_runs(app: App) -> None:
    refused: list[str] = []

    def attempt(ctx: Context, name: str, data: Any = b"x") -> None:
        try:
            ctx.save(name, data)
        except InvalidInput as error:
            refused.append(str(error))

    @app.task
    def save(ctx: Context, path: str) -> int:
        ctx.save("a/b", b"one")
        ctx.save("a/b", b"two")
        for name in ("A/b", "a", "a/b/c", "result.json"):
            attempt(ctx, name)
        for data in (Path(path), object(), "\ud800", float("nan")):
            attempt(ctx, "c", data)
        return len(ctx.artifacts)

    handle = save.enqueue("/")
    app.work()
    assert handle.result() == 1
    assert handle.read("a/b") == b"two"
    rules = ["only in upper and lower case", "other's folder", "other's folder", "where a large result goes"]
    rules += ["is a path", "JSON cannot hold", "lone surrogate", "NaN"]
    assert len(refused) == len(rules)
    assert all(rule in said for rule, said in zip(rules, refused, strict=True)), refused


def test_how_many_files_an_attempt_may_save_is_bounded(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_ARTIFACTS == 10_000
    monkeypatch.setattr("holdfast.tasks.saving.MOST_ARTIFACTS", 3)

    @app.task
    def save(ctx: Context) -> None:
        for number in range(4):
            ctx.save(f"{number}", b"")

    handle = save.using(max_attempts=1).enqueue()
    app.work()
    with pytest.raises(JobFailed, match="pack several into one"):
        handle.result()
    assert len(handle.artifacts()) == 3


def test_a_result_beyond_all_limits_says_what_to_do(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placing, "MAX_SAVED_RESULT_BYTES", 300_000)

    @app.task
    def huge() -> str:
        return "x" * 300_000

    handle = huge.enqueue()
    app.work()
    with pytest.raises(JobFailed, match=r"unstorable_result.*save it in parts with ctx\.save"):
        handle.result()
    assert handle.job().failures == 1, "it is not tried again"


def test_a_thread_that_outlives_its_job_changes_nothing_on_record(app: App) -> None:
    go, done = threading.Event(), threading.Event()
    problems: list[Exception] = []

    def late(ctx: Context) -> None:
        go.wait(DEADLINE_SECONDS)
        try:
            ctx.save("page.html", b"late")
        except Exception as error:
            problems.append(error)
        done.set()

    @app.task
    def save(ctx: Context) -> Any:
        threading.Thread(target=late, args=(ctx,)).start()
        return ctx.save("page.html", b"in time")

    handle = save.enqueue()
    app.work()
    go.set()
    assert done.wait(DEADLINE_SECONDS)
    assert [str(problem) for problem in problems] == ["name: page.html cannot be saved: the attempt is over"]
    assert handle.result() == b"in time"


def test_outside_a_job_nothing_is_saved(app: App, tmp_path: Path) -> None:
    @app.task
    def save(ctx: Context) -> ArtifactRef:
        return ctx.save("page.html", b"x")

    with pytest.raises(ConfigurationError, match="only inside a job"):
        save()
    assert not (tmp_path / "files").exists()


def test_an_async_task_saves_without_holding_up_its_loop(app: App) -> None:
    @app.task
    async def save(ctx: Context) -> list[str]:
        return [str(ref) for ref in await asyncio.gather(*(ctx.asave(f"{n}.txt", str(n)) for n in range(5)))]

    handle = save.enqueue()
    app.work()
    assert handle.result() == [f"{handle.id}/1/{number}.txt" for number in range(5)]
    assert [handle.read(f"{number}.txt") for number in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_place_that_cannot_be_written_fails_the_attempt_and_may_be_tried_again(app: App, tmp_path: Path) -> None:
    (tmp_path / "files").write_text("in the way")

    @app.task
    def big() -> str:
        return BIG

    @app.task
    def save(ctx: Context) -> None:
        ctx.save("page.html", b"x")

    handles: list[Handle[Any]] = [big.enqueue(), save.enqueue()]
    app.work()
    for handle in handles:
        job = handle.job()
        assert job.state is State.RETRYABLE
        assert job.last_error is not None
        assert job.last_error["code"] == ArtifactUnavailable.__name__
        assert "cannot be saved in" in job.last_error["message"]


def test_a_bucket_by_url(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db", artifacts="memory://bucket/jobs")

    @app.task
    def big() -> str:
        return BIG

    handle = big.enqueue()
    app.work()
    assert handle.result() == BIG
    assert [path.name for path in tmp_path.iterdir() if "jobs.db" not in path.name] == []
    app.close()


def test_a_test_on_a_fresh_store_leaves_no_files_behind(app: App, tmp_path: Path) -> None:
    @app.task
    def big() -> str:
        return BIG

    with fresh_store(app, tmp_path) as jobs:
        handle = big.enqueue()
        jobs.work()
        assert handle.result() == BIG
    assert not (tmp_path / "files").exists()
    assert [path.name for path in tmp_path.iterdir() if "jobs.db" not in path.name] == []
    kept = big.enqueue()
    app.work()
    assert kept.result() == BIG
    assert (tmp_path / "files").exists()
    with pytest.raises(ArtifactMissing):
        kept.read("other")


def test_where_files_are_must_be_a_place() -> None:
    for wrong in ("", "://", 7):
        with pytest.raises(InvalidInput, match="artifacts: must be a folder or a URL"):
            App(artifacts=wrong)  # type: ignore[arg-type]
