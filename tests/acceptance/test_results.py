"""`holdfast jobs artifacts` and `holdfast jobs result`: what a job saved and returned, for people and for programs."""

from pathlib import Path

import pytest

from holdfast import App, ArtifactRef, Context
from holdfast.stores.sql_store import SqlStore
from tests.acceptance.command_line import CommandLine, InProcess

BIG = "x" * 300_000


class Jobs:
    """One job of each kind, run in this process."""

    def __init__(self, app: App) -> None:
        @app.task
        def small() -> dict[str, int]:
            return {"n": 1}

        @app.task
        def nothing() -> None:
            pass

        @app.task
        def big() -> str:
            return BIG

        @app.task
        def binary(ctx: Context) -> ArtifactRef:
            ctx.save("notes.txt", "ünï")
            return ctx.save("model.bin", b"\x00\xff")

        @app.task(max_attempts=1)
        def fails(ctx: Context) -> None:
            ctx.save("page.html", "<p>")
            raise ValueError("unexpected")

        tasks = (small, nothing, big, binary, fails)
        self.ids = {task.name: task.enqueue().id for task in tasks}
        app.work()

    def __getitem__(self, name: str) -> str:
        return self.ids[name]


@pytest.fixture
def jobs(store: SqlStore, tmp_path: Path) -> Jobs:
    url = store.database.engine.url.render_as_string(hide_password=False)
    app = App(url, artifacts=tmp_path / "holdfast-artifacts")
    jobs = Jobs(app)
    app.close()
    return jobs


def test_results_are_printed_or_written_wherever_they_are(here: InProcess, holdfast: CommandLine, jobs: Jobs) -> None:
    assert here("jobs", "result", jobs["small"]).succeeded().out == '{"n": 1}\n'
    assert here("jobs", "result", jobs["nothing"]).succeeded().out == "null\n"
    assert here("jobs", "result", jobs["big"]).succeeded().out == f'"{BIG}"'
    assert here("jobs", "result", jobs["big"], "--json").document["result"] == BIG
    assert holdfast("jobs", "result", jobs["binary"], "--output", "out.bin").succeeded().out == ""
    assert (here.folder / "out.bin").read_bytes() == b"\x00\xff"
    written = here("jobs", "result", jobs["small"], "--output", "out.json", "--json").succeeded().document
    assert (written["bytes"], (here.folder / "out.json").read_text()) == (9, '{"n": 1}\n')
    assert here("jobs", "result", jobs["binary"], "--name", "notes.txt").succeeded().out == "ünï"
    assert here("jobs", "result", jobs["fails"], "--name", "page.html").succeeded().out == "<p>"


def test_artifacts_are_listed_also_of_a_failed_job(here: InProcess, jobs: Jobs) -> None:
    listed = here("jobs", "artifacts", jobs["binary"], "--json").document["artifacts"]
    assert [(item["name"], item["bytes"], item["attempt"]) for item in listed] == [
        ("model.bin", 2, 1),
        ("notes.txt", 5, 1),
    ]
    assert listed[0]["ref"] == f"{jobs['binary']}/1/model.bin"
    assert "page.html" in here("jobs", "artifacts", jobs["fails"]).succeeded().out
    assert here("jobs", "artifacts", jobs["small"], "--json").document == {"artifacts": []}
    assert "saved nothing" in here("jobs", "artifacts", jobs["small"]).succeeded().err
    shown = here("jobs", "show", jobs["binary"], "--json").document
    assert (shown["result_ref"], len(shown["artifacts"])) == (f"{jobs['binary']}/1/model.bin", 2)
    assert "notes.txt" in here("jobs", "show", jobs["binary"]).succeeded().out


def test_what_cannot_be_shown_is_said(here: InProcess, jobs: Jobs, tmp_path: Path) -> None:
    assert "is failed and has no result" in here("jobs", "result", jobs["fails"]).said_no().err
    assert "no artifact 'other'" in here("jobs", "result", jobs["binary"], "--name", "other").said_no().err
    here("jobs", "result", jobs["binary"], "--json").refused("--output FILE")
    here("jobs", "result", jobs["small"], "--output", "no/such/folder").refused("--output no/such/folder")
    here("jobs", "result", jobs["big"], "--artifacts", " ").refused("--artifacts: must be a folder or a URL")
    for missing in (
        here("jobs", "result", jobs["big"], "--artifacts", "elsewhere"),
        here("jobs", "result", jobs["big"], HOLDFAST_ARTIFACTS="elsewhere"),
    ):
        said = missing.said_no().err
        assert "there is no such file in" in said
        assert "HOLDFAST_ARTIFACTS" in said
    assert not (tmp_path / "elsewhere").exists(), "reading makes no folder"
    unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
    for command in ("artifacts", "result"):
        assert "there is no job" in here("jobs", command, unknown).said_no().err
