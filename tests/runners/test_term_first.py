"""A command that is to stop gets TERM, and the time to put its things away, before anybody kills it."""

from pathlib import Path

from tests.runners.driver import Start, job, pid_in

TASKS = """
SCRIPT = "trap 'echo tidy > $1; exit 0' TERM; echo $$ > $0; while :; do sleep 0.05; done"
app.command("tidy", ["sh", "-c", SCRIPT, str(Path.cwd() / "pid"), str(Path.cwd() / "tidied")])
"""


def test_a_command_that_heeds_term_ends_in_its_own_way(start: Start, tmp_path: Path) -> None:
    driver = start(TASKS, grace=600.0).ready()
    driver.run(job(1, "tidy"))
    pid_in(tmp_path / "pid")
    driver.send("cancel", id="1.1", reason="cancel_requested")
    assert driver.outcome("1.1")["kind"] == "cancelled"
    assert (tmp_path / "tidied").read_text() == "tidy\n"
