"""A module of tasks costs little to import: heavy libraries come when they are used."""

import subprocess
import sys
from pathlib import Path

HEAVY = {"alembic", "opentelemetry", "psycopg", "pydantic", "pydantic_core", "rich", "sqlalchemy", "structlog", "typer"}

PROGRAM = """
import sys
import holdfast
from holdfast import App, Cancel, Context, Handle, JobFailed, Permanent, RetryPolicy, Snooze, TaskGroup, current

app = App("sqlite:///nowhere/never-opened.db")

@app.task
def add(a: int, b: int, ctx: Context) -> int:
    return a + b

add.arguments.dump((1, 2), {})
add.arguments.load({"a": 1, "b": 2}, None)
print(*{name.partition(".")[0] for name in sys.modules})
"""


def test_a_module_of_plain_tasks_loads_no_heavy_library(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, cwd=tmp_path)

    assert HEAVY.isdisjoint(done.stdout.split())


def test_every_public_name_is_there() -> None:
    program = "import holdfast\nfor name in holdfast.__all__: getattr(holdfast, name)\nprint(*dir(holdfast))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert {"App", "TaskGroup", "Context", "current", "Handle"} <= set(done.stdout.split())
