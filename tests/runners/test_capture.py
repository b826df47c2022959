"""What user code prints and logs is kept with its job, and still goes where it went before."""

from typing import Any

import pytest

from tests.runners.driver import Driver, Start, job

LOGGING = "import logging, threading\nlogger = logging.getLogger('shop')\n"


def lines_of(driver: Driver, number: int) -> list[dict[str, Any]]:
    """What the job said, once it is done; everything was sent before that."""
    assert driver.outcome(f"{number}.1")["kind"] == "succeeded", driver.outcome(f"{number}.1")
    frames = driver.heard("log", id=f"{number}.1")
    return [line for frame in frames for line in frame["lines"]]


def said(driver: Driver, number: int = 1) -> list[tuple[str, str]]:
    return [(line["stream"], line["message"]) for line in lines_of(driver, number)]


def run(start: Start, body: str, before: str = "", **options: Any) -> Driver:
    driver = start(f"{LOGGING}{before}\n@app.task\ndef talk(ctx: Context):\n{body}", **options).ready()
    driver.run(job(1, "talk"))
    return driver


def test_prints_and_errors_line_by_line_in_order(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    body = """
    print("one", 1); print("two", end=""); sys.stderr.write("careful\\n"); print(" and a half")
    ctx.log("between", rows=3)
    sys.stdout.writelines(["three\\n", "fo", "ur\\n"])
    sys.stdout.buffer.write("fünf\\n".encode()); sys.stdout.flush()
    print("no end", end="", flush=True)
"""
    driver = run(start, body)
    assert said(driver) == [
        ("stdout", "one 1"),
        ("stderr", "careful"),
        ("stdout", "two and a half"),
        ("log", "between"),
        ("stdout", "three"),
        ("stdout", "four"),
        ("stdout", "fünf"),
        ("stdout", "no end"),
    ]
    assert [line["number"] for line in lines_of(driver, 1)] == list(range(1, 9))
    driver.send("stop")
    driver.wait_exit()
    shown = capfd.readouterr()
    assert shown.out == "one 1\ntwo and a half\nthree\nfour\nfünf\nno end"
    assert shown.err == "careful\n"


def test_structlog_is_kept_however_it_was_configured(start: Start) -> None:
    before = """
import structlog
early = structlog.get_logger()
structured = structlog.wrap_logger(logging.getLogger("shop"), [structlog.processors.JSONRenderer()])
"""
    body = """
    early.info("printed", rows=3)
    structlog.get_logger().bind(job_id="theirs").warning("also printed")
    structured.info("logged", rows=4)
"""
    lines = lines_of(run(start, body, before), 1)
    assert [line["stream"] for line in lines] == ["stdout", "stdout", "log"]
    assert "printed" in lines[0]["message"]
    assert "rows" in lines[0]["message"]
    assert lines[2]["message"] == '{"rows": 4, "event": "logged"}'
    assert all((line["job_id"], line["attempt"]) == ("1", 1) for line in lines), "whatever they say themselves"


def test_streams_behave_as_code_expects(start: Start) -> None:
    body = """
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        assert stream.fileno() == number and stream.isatty() == os.isatty(number) and stream.writable()
        assert stream.encoding and stream.errors and stream.buffer.fileno() == number and not stream.closed
        assert stream.write("four") == 4 and stream.write("\\n") == 1
        stream.reconfigure(errors="backslashreplace")
    subprocess.run(["true"], stdout=sys.stdout, stderr=sys.stderr, check=True)
    try: print("x", file=sys.stdout, sep=3)
    except TypeError: print("as ever")
"""
    assert said(run(start, body)) == [("stdout", "four"), ("stderr", "four"), ("stdout", "as ever")]


def test_log_records_with_their_level_and_error(start: Start) -> None:
    body = """
    logger.debug("too low"); logger.info("hello %s", "ann"); logging.getLogger().warning("careful")
    try: 1 / 0
    except ZeroDivisionError: logger.exception("it broke")
    logger.error("%d", "not a number")
"""
    lines = lines_of(run(start, body), 1)
    assert [(line["message"], line["level"], line["fields"]["logger"]) for line in lines] == [
        ("hello ann", "info", "shop"),
        ("careful", "warning", "root"),
        ("it broke", "error", "shop"),
        ("%d", "error", "shop"),
    ]
    assert all(line["stream"] == "log" for line in lines)
    assert lines[2]["fields"]["exception"].endswith("ZeroDivisionError: division by zero")


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("logging.basicConfig(level=logging.DEBUG)", ""),
        ("", "    logging.basicConfig(level=logging.DEBUG, format='in the job %(message)s')\n"),
        ("", "    logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, force=True)\n"),
        (
            "import logging.config\n"
            "CONFIG = {'version': 1, 'root': {'level': 'DEBUG', 'handlers': ['h']},"
            " 'handlers': {'h': {'class': 'logging.StreamHandler'}}}",
            "    logging.config.dictConfig(CONFIG)\n    logger.disabled = False\n",
        ),
    ],
    ids=["at import", "in the job", "to stdout", "dictConfig in the job"],
)
def test_what_the_user_configured_works_and_nothing_is_kept_twice(
    start: Start, capfd: pytest.CaptureFixture[str], before: str, body: str
) -> None:
    driver = run(start, f"{body}    logger.debug('low'); logger.warning('high'); print('plain')\n", before)
    assert said(driver) == [("log", "low"), ("log", "high"), ("stdout", "plain")]
    driver.send("stop")
    driver.wait_exit()
    shown = capfd.readouterr()
    assert "low" in shown.out + shown.err
    assert (shown.out + shown.err).count("high") == 1


def test_a_level_that_the_user_chose_stays(start: Start) -> None:
    driver = run(start, "    logger.warning('low'); logger.error('high')\n", "logging.getLogger().setLevel('ERROR')")
    assert said(driver) == [("log", "high")]


def test_without_configuration_warnings_are_still_shown(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    driver = run(start, "    logger.info('low'); logger.warning('high')\n")
    assert said(driver) == [("log", "low"), ("log", "high")]
    assert capfd.readouterr().err == "high\n"


def test_a_progress_bar_is_one_line(start: Start) -> None:
    body = """
    for number in range(1, 5001): print(f"\\r{number / 50:.0f}% of it", end="", file=sys.stderr)
    print(file=sys.stderr); print("done")
"""
    assert said(run(start, body)) == [("stderr", "100% of it"), ("stdout", "done")]


def test_threads_of_the_only_job_speak_for_it(start: Start) -> None:
    body = """
    def speak(name):
        for _ in range(200): print("I am", name)
        logger.info("bye %s", name)
    threads = [threading.Thread(target=speak, args=(name,)) for name in "abc"]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""
    lines = said(run(start, body))
    assert sorted(set(lines)) == [
        *(("log", f"bye {name}") for name in "abc"),
        *(("stdout", f"I am {name}") for name in "abc"),
    ]
    assert len(lines) == 603


INTERLEAVED = """
import logging
logger = logging.getLogger("shop")
@app.task
async def talk(name: str, other: str):
    for number in range(20):
        print(name, end=" ")
        await asyncio.sleep(0)
        print(number)
        logger.info(f"{name} logs {number}")
        await asyncio.to_thread(lambda: print(f"{name} in a thread"))
    Path(name).touch()
    while not Path(other).exists(): await asyncio.sleep(0.01)
"""


def test_two_jobs_on_one_loop_are_told_apart(start: Start) -> None:
    driver = start(INTERLEAVED, kind="async", slots=4).ready()
    driver.run(job(1, "talk", name="ann", other="bob"), job(2, "talk", name="bob", other="ann"))
    for number, name in ((1, "ann"), (2, "bob")):
        expected = {
            *(("stdout", f"{name} {count}") for count in range(20)),
            *(("log", f"{name} logs {count}") for count in range(20)),
            ("stdout", f"{name} in a thread"),
        }
        assert set(said(driver, number)) == expected
        assert len(said(driver, number)) == 60
    started = driver.order()
    assert started[:2] == ["started 1.1", "started 2.1"]


def test_two_jobs_in_threads_are_told_apart_and_a_stranger_belongs_to_neither(start: Start) -> None:
    source = """
import threading
@app.task
def talk(name: str, other: str):
    Path(name).touch()
    while not Path(other).exists(): time.sleep(0.01)
    stranger = threading.Thread(target=lambda: print("whose am I?")); stranger.start(); stranger.join()
    for number in range(50): print(name, number)
    Path(name + name).touch()
    while not Path(other + other).exists(): time.sleep(0.01)
"""
    driver = start(source, slots=2).ready()
    driver.run(job(1, "talk", name="ann", other="bob"), job(2, "talk", name="bob", other="ann"))
    for number, name in ((1, "ann"), (2, "bob")):
        assert said(driver, number) == [("stdout", f"{name} {count}") for count in range(50)]


def test_a_job_starts_with_a_line_of_its_own(start: Start) -> None:
    driver = run(start, "    print('the end of', end=' ')\n")
    driver.run(job(2, "talk"))
    assert said(driver, 1) == said(driver, 2) == [("stdout", "the end of ")]


def test_a_signal_handler_may_speak_while_its_own_thread_does(start: Start) -> None:
    body = """
    heard = []
    def handler(*_):
        heard.append(1)
        logger.info("alarm")
        signal.setitimer(signal.ITIMER_REAL, 0.002)  # not before: a slow machine would do nothing but handle
    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    number = 0
    while len(heard) < 50: number += 1; logger.info(str(number)); ctx.progress(number)
    signal.setitimer(signal.ITIMER_REAL, 0)
"""
    lines = said(run(start, body))
    assert lines.count(("log", "alarm")) >= 1  # a busy log may be full before the last alarm


def test_what_the_log_cannot_take_does_not_fail_the_job(start: Start) -> None:
    body = """
    class Bad:
        def __str__(self): raise RuntimeError("no")
    logger.info("%s", Bad()); logger.info(Bad())
    print("nul \\x00 surrogate \\ud800".encode("utf-8", "replace").decode())
    sys.stdout.buffer.write(b"\\xff\\xfe\\n")
    print("after")
"""
    assert said(run(start, body))[-1] == ("stdout", "after")


def test_beyond_its_budget_a_job_only_prints(start: Start) -> None:
    body = """
    for number in range(40_000): print(number)
    for number in range(20_000): logger.info("%d", number)
"""
    driver = run(start, body)
    lines = lines_of(driver, 1)
    assert len(lines) == 10_001
    assert lines[-1]["fields"] == {"truncated": True}
    assert [line["message"] for line in lines[:-1]] == [str(number) for number in range(10_000)]


def test_a_command_has_its_own_numbers(start: Start) -> None:
    """Of a command's job only the command speaks: whatever else prints in the runner meanwhile is nobody's."""
    source = """
import threading
def chatter():
    while True:
        command_runs = Path("one").exists()
        print("noise", file=sys.stderr)
        if command_runs: Path("noise").touch()
        time.sleep(0.001)
threading.Thread(target=chatter, daemon=True).start()
app.command("say", ["sh", "-c", "echo one; touch one; until [ -e noise ]; do sleep 0.02; done; echo two"], cwd=".")
"""
    driver = start(source).ready()
    driver.run(job(1, "say"))
    lines = lines_of(driver, 1)
    assert [(line["number"], line["message"]) for line in lines] == [(1, "one"), (2, "two")]
