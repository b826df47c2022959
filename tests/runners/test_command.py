"""One external command: what it gets, how its end is judged, what becomes of what it started."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.logs import Stream
from holdfast.domain.outcome import Cancelled, Crashed, Failed, Snoozed, Succeeded
from holdfast.runners.descendants import children
from holdfast.tasks.command import Command
from tests.runners.commanding import JOB_ID, Stoppable, run, shell
from tests.runners.driver import Start, is_gone, job, pid_in, wait_gone
from tests.servers.waiting import wait_until

PYTHON = sys.executable
HOSTILE = [
    "--help",
    "-rf",
    "$(touch x)",
    "`id`",
    "'\"\\",
    "a\nb\tc",
    "; rm -rf /",
    "ünïcödé 🙂",
    "%s {payload} {}",
    "*",
]


def failure(code: int) -> tuple[str, bool, int | None]:
    outcome = shell(f"exit {code}").outcome
    assert isinstance(outcome, Failed)
    return outcome.error.code, outcome.error.retryable, outcome.exit_code


# what it gets


def test_the_payload_arrives_to_the_byte() -> None:
    payload = {"texts": HOSTILE, **{text: [text] for text in HOSTILE}}
    script = "import sys; sys.stdout.buffer.write(sys.argv[1].encode('utf-8', 'surrogateescape').hex().encode())"
    as_argument = run(PYTHON, "-c", script, "{payload}", payload=payload)
    assert json.loads(bytes.fromhex(as_argument.stdout[0])) == payload
    inside = run(PYTHON, "-c", script, "--data={payload}", payload=payload)
    assert bytes.fromhex(inside.stdout[0]).removeprefix(b"--data=") == bytes.fromhex(as_argument.stdout[0])
    on_stdin = run(PYTHON, "-c", "import sys; print(sys.stdin.buffer.read().hex())", payload=payload)
    assert bytes.fromhex(on_stdin.stdout[0]) == bytes.fromhex(as_argument.stdout[0]) + b"\n"


def test_with_the_payload_in_an_argument_stdin_is_empty() -> None:
    assert run("sh", "-c", "wc -c; : {payload}").stdout == ["0"]


def test_a_program_need_not_read_its_stdin() -> None:
    assert shell("exec 0<&-; echo fine", payload={"text": "x" * 200_000}).stdout == ["fine"]


def test_a_payload_too_large_for_an_argument_says_what_to_do() -> None:
    outcome = run("true", "{payload}", payload={"text": "x" * 200_000}).outcome
    assert isinstance(outcome, Failed)
    assert not outcome.error.retryable
    assert "read stdin" in outcome.error.message


def test_the_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://user:password@host/db")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("LC_TIME", "C")
    ran = run("env", env={"MINE": "1", "HOLDFAST_JOB_ID": "forged"}, timeout=2.5)
    given = dict(line.split("=", 1) for line in ran.stdout)
    assert "DATABASE_URL" not in given
    assert "AWS_SECRET_ACCESS_KEY" not in given
    assert given["PATH"] == os.environ["PATH"]
    assert given["LC_TIME"] == "C"
    assert given["MINE"] == "1"
    own = {name.removeprefix("HOLDFAST_"): value for name, value in given.items() if name.startswith("HOLDFAST_")}
    assert own == {"JOB_ID": JOB_ID, "ATTEMPT": "2", "TASK": "test", "QUEUE": "default", "TIMEOUT_SECONDS": "2.5"}


def test_the_directory_is_temporary_unless_the_task_names_one(tmp_path: Path) -> None:
    ran = shell("touch file; pwd")
    assert "holdfast-" in ran.stdout[0]
    assert not Path(ran.stdout[0]).exists()
    assert shell("pwd", cwd=str(tmp_path)).stdout == [str(tmp_path)]
    missing = shell("pwd", cwd=str(tmp_path / "missing")).outcome
    assert "the working directory" in missing.error.message
    assert missing.error.retryable is False


def test_it_has_three_descriptors_and_default_signals() -> None:
    script = """
import os
names = os.listdir("/proc/self/fd")  # one of them was open for the listing only
print([name for name in names if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}")])
"""
    with open("/dev/null") as extra:  # noqa: PTH123
        os.set_inheritable(extra.fileno(), True)
        assert run(PYTHON, "-I", "-S", "-c", script).stdout == ["[]"]
    masks = shell("grep -E 'SigBlk|SigIgn' /proc/self/status").stdout
    # Of the standard signals, 1 to 31: make starts its children with two of the C library's own ignored.
    assert [int(line.split()[1], 16) & 0x7FFFFFFF for line in masks] == [0, 0]


def test_it_leads_a_session_of_its_own() -> None:
    pid, session = shell("cut -d' ' -f1,6 /proc/$$/stat").stdout[0].split()
    assert pid == session


# how its end is judged


def test_exit_codes() -> None:
    assert shell("exit 0").outcome == Succeeded(None)
    assert failure(1) == ("exit_1", True, 1)
    assert failure(65) == ("exit_65", False, 65)
    assert failure(127) == ("exit_127", True, 127)
    assert failure(255) == ("exit_255", True, 255)
    outcome = shell("exit 3", permanent_exit_codes=(3, 4)).outcome
    assert isinstance(outcome, Failed)
    assert not outcome.error.retryable


def test_the_error_tells_what_was_on_stderr() -> None:
    outcome = shell("echo first >&2; echo 'disk is full' >&2; exit 1").outcome
    assert isinstance(outcome, Failed)
    assert outcome.error.message == "the command exited with code 1: disk is full"
    assert outcome.error.stack == "first\ndisk is full"


@pytest.mark.parametrize("number", [9, 11, 15])
def test_a_signal_is_a_crash(number: int) -> None:
    outcome = shell(f"kill -{number} $$").outcome
    assert isinstance(outcome, Crashed)
    assert outcome.signal == number


def test_a_program_that_is_not_there_or_cannot_run(tmp_path: Path) -> None:
    missing = run("no-such-program").outcome
    assert missing == Failed(missing.error)
    assert missing.error.code == "command_not_found"
    assert missing.error.message == "command not found: no-such-program"
    assert not missing.error.retryable
    (tmp_path / "plain").write_text("text")
    denied = run(str(tmp_path / "plain")).outcome
    assert denied.error.code == "command_not_started"
    assert not denied.error.retryable
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    assert not run(str(tmp_path / "script")).outcome.error.retryable


def test_usage_is_the_programs_own() -> None:
    usage = run(PYTHON, "-c", "x = bytearray(60_000_000); [None for _ in range(3_000_000)]").end.usage
    assert usage["max_rss_kb"] > 60_000
    assert usage["cpu_ms"] > 10


# what it says


def say(**message: Any) -> str:
    return f"print({json.dumps(json.dumps(message))}, flush=True)"


def talk(*lines: str, **options: Any) -> Any:
    return run(PYTHON, "-c", "\n".join(["import sys", *lines]), **options)


def test_the_last_result_counts() -> None:
    first, second = say(holdfast="result", result=1), say(holdfast="result", result={"a": [None, "ü"]})
    ran = talk(first, "print('noise')", second)
    assert ran.outcome == Succeeded({"a": [None, "ü"]})
    assert ran.stdout == ["noise"]


def test_progress_and_logs() -> None:
    ran = talk(
        say(holdfast="progress", done=3, total=10, note="three"),
        say(holdfast="progress", done=0.5),
        say(holdfast="log", message="hello", level="warning", size=3),
    )
    assert ran.heard.values == [{"done": 3, "total": 10, "note": "three"}, {"done": 0.5}]
    (line,) = ran.heard.lines
    assert (line.stream, line.message, line.level, line.fields) == (Stream.LOG, "hello", "warning", {"size": 3})


def test_snooze_and_cancel_count_with_exit_code_zero() -> None:
    snooze = say(holdfast="snooze", delay_seconds=60, reason="rate limit")
    assert talk(snooze).outcome == Snoozed(60.0, "rate limit")
    assert talk(say(holdfast="cancel", reason="no need")).outcome == Cancelled("no need")
    assert isinstance(talk(snooze, "sys.exit(1)").outcome, Failed)


def test_an_error_explains_an_exit_code() -> None:
    error = say(holdfast="error", code="no_such_user", message="user 7 is gone", retryable=False)
    outcome = talk(error, "sys.exit(1)").outcome
    assert (outcome.error.code, outcome.error.message, outcome.error.retryable) == (
        "no_such_user",
        "user 7 is gone",
        False,
    )
    assert outcome.exit_code == 1
    assert talk(error).outcome == Succeeded(None)
    permanent = talk(say(holdfast="error", message="bad data"), "sys.exit(65)").outcome
    assert permanent.error.retryable is False


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"holdfast": "finish"}', "must be one of result"),
        ('{"holdfast": 5}', "must be one of result"),
        ('{"holdfast": "result"}', "result: is required"),
        ('{"holdfast": "result", "result": NaN}', "NaN"),
        ('{"holdfast": "result", "result": "\\u0000"}', "NUL"),
        ('{"holdfast": "progress", "done": "3"}', "done: must be a number"),
        ('{"holdfast": "log"}', "message: must be a string"),
        ('{"holdfast": "log", "message": "x", "level": "loud"}', "level: must be one of"),
        ('{"holdfast": "error", "message": "x", "retryable": "no"}', "retryable: must be true or false"),
        ('{"holdfast": "snooze", "delay_seconds": -1}', "delay_seconds"),
        ('{"holdfast": "result", "result": ', "not valid JSON"),
        ('{"holdfast": "result", "result": ' + "[" * 5000 + "]" * 5000 + "}", ""),
    ],
)
def test_a_malformed_message_is_output_and_a_warning(line: str, problem: str) -> None:
    ran = run("printf", "%s\\n", line)
    assert ran.outcome == Succeeded(None)
    assert ran.stdout == [line]
    (warning,) = [said for said in ran.heard.lines if said.stream is Stream.LOG]
    assert warning.level == "warning"
    assert problem in warning.message


@pytest.mark.parametrize("size", [5_000_000, 20_000_000])
def test_a_result_that_is_too_large(size: int) -> None:
    ran = talk(f'print(\'{{"holdfast": "result", "result": "\' + \'x\' * {size} + \'"}}\')', "print('after')")
    assert ran.outcome == Succeeded(None)
    assert ran.stdout[1] == "after"
    assert len(ran.stdout[0]) < 20_000
    assert ran.heard.said(Stream.LOG)


@pytest.mark.parametrize("line", ['{"a": 1}', "[1]", '"holdfast"', "{", '{"message": "holdfast"}', '["holdfast"]'])
def test_other_json_is_plain_output(line: str) -> None:
    ran = run("echo", line)
    assert ran.stdout == [line]
    assert len(ran.heard.lines) == 1


# what it prints


def test_undecodable_and_binary_output_is_kept_as_far_as_text_can_hold_it() -> None:
    ran = run("printf", "a\\377b\\000c\\nlast")
    assert ran.stdout == ["a\ufffdb\ufffdc", "last"]


def peak_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def fresh_peak_kb() -> int:
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of earlier tests, which would hide this one's
    return peak_kb()


def test_a_gigabyte_in_flat_memory() -> None:
    before = fresh_peak_kb()
    script = "import os\nblock = (b'x' * 99 + b'\\n') * 10_000\nfor _ in range(1000): os.write(1, block)\n"
    ran = talk(script, say(holdfast="result", result="still heard"))
    grown = peak_kb() - before
    assert ran.outcome == Succeeded("still heard")
    assert grown < 20 * 1024
    assert len(ran.stdout) <= 10_500
    assert sum(len(line) for line in ran.stdout) <= 1024 * 1024
    assert ran.heard.lines[-1].fields == {"truncated": True}


def test_a_line_without_an_end_in_flat_memory() -> None:
    before = fresh_peak_kb()
    ran = talk("import os\nfor _ in range(1000): os.write(2, b'y' * 1_000_000)", "print('done')")
    grown = peak_kb() - before
    assert grown < 20 * 1024
    (line,) = ran.heard.said(Stream.STDERR)
    assert line.startswith("yyy")
    assert "more bytes of this line cut" in line
    assert len(line) < 20_000


def test_the_cap_is_the_tasks() -> None:
    ran = run("seq", "1", "1000", max_output_bytes=100)
    assert sum(len(line) for line in ran.stdout) <= 100
    assert ran.stdout[0] == "1"
    assert "cut here" in ran.heard.lines[-1].message


# what it started


STUBBORN = """
trap '' TERM
setsid sh -c 'trap "" TERM; echo $$ > "$0/daemon"; while :; do sleep 0.05; done' "$0" &
echo $$ > "$0/main"
while :; do sleep 0.05; done
"""


def test_stopping_takes_the_whole_tree(tmp_path: Path) -> None:
    command = Stoppable(Command(argv=("sh", "-c", STUBBORN, str(tmp_path))), term_grace_seconds=0.2, timeout=1.5)
    pids = [pid_in(tmp_path / "main"), pid_in(tmp_path / "daemon")]
    command.stop("timeout")
    outcome = command.finish().outcome
    assert isinstance(outcome, Failed)
    assert outcome.error.code == "timeout"
    wait_gone(*pids)


def test_a_stop_before_the_start_is_not_lost() -> None:
    command = Stoppable(Command(argv=("sleep", "600")))
    command.stop("cancel_requested")
    assert command.finish().outcome == Cancelled("cancel requested")


def test_a_daemon_that_keeps_stdout_does_not_keep_the_job(start: Start, tmp_path: Path) -> None:
    # Forks twice, new session, no environment, stdout open: only a subreaper still sees it.
    source = f"""
daemon = "(env -i setsid sh -c 'echo $$ > {tmp_path}/daemon; exec sleep 300' &)"
app.command("leaves", ["sh", "-c", daemon + "; until [ -s {tmp_path}/daemon ]; do sleep 0.02; done; echo out"])
"""
    driver = start(source).ready()
    driver.run(job(1, "leaves"))
    assert driver.outcome("1.1")["kind"] == "succeeded"
    wait_gone(pid_in(tmp_path / "daemon"))
    assert [line["message"] for line in driver.heard("log")[0]["lines"]] == ["out"]


def test_a_quiet_daemon_goes_too_beside_other_jobs(start: Start, tmp_path: Path) -> None:
    source = f"""
daemon = "(setsid sh -c 'echo $$ > {tmp_path}/daemon; exec sleep 300' >/dev/null 2>&1 &)"
app.command("leaves", ["sh", "-c", daemon + "; until [ -s {tmp_path}/daemon ]; do sleep 0.02; done"])
app.command("neighbour", ["sh", "-c", "echo $$ > {tmp_path}/neighbour; exec sleep 300"])
"""
    driver = start(source, slots=2).ready()
    driver.run(job(1, "neighbour"))
    neighbour = pid_in(tmp_path / "neighbour")
    driver.run(job(2, "leaves"))
    assert driver.outcome("2.1")["kind"] == "succeeded"
    wait_gone(pid_in(tmp_path / "daemon"))
    assert not is_gone(neighbour)


def test_messages_arrive_while_it_runs(start: Start, tmp_path: Path) -> None:
    lines = """'{"holdfast":"progress","done":1}' '{"holdfast":"log","message":"hi"}'"""
    script = f"printf '%s\\\\n' {lines}; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"
    driver = start(f'app.command("slow", ["sh", "-c", """{script}"""])').ready()
    driver.run(job(1, "slow"))
    assert driver.wait("progress", id="1.1")["value"] == {"done": 1}
    assert driver.wait("log", id="1.1")["lines"][0]["message"] == "hi"
    assert not driver.heard("done")
    (tmp_path / "go").touch()
    assert driver.outcome("1.1")["kind"] == "succeeded"


def test_no_descriptor_and_no_zombie_is_left_in_the_runner(start: Start) -> None:
    driver = start('app.command("quick", ["sh", "-c", "sleep 0 & echo x"])').ready()
    driver.run(job(0, "quick"))
    driver.outcome("0.1")
    wait_until(lambda: children(driver.pid) == [], what="no children")
    before = len(list(Path(f"/proc/{driver.pid}/fd").iterdir()))
    driver.run(*[job(number, "quick") for number in range(1, 21)])
    driver.outcome("20.1")
    wait_until(lambda: children(driver.pid) == [], what="no children")
    assert len(list(Path(f"/proc/{driver.pid}/fd").iterdir())) == before


def test_a_command_does_not_start_for_a_runner_that_is_gone(tmp_path: Path) -> None:
    somebody_else = "1"
    words = [PYTHON, "-I", "-S", shim_path(), somebody_else, "1", "touch", str(tmp_path / "started")]
    assert subprocess.run(words, check=False, stdout=subprocess.DEVNULL).returncode == 1
    assert not (tmp_path / "started").exists()


def shim_path() -> str:
    from holdfast.runners.commands import spawn

    return str(Path(spawn.__file__).with_name("shim.py"))
