"""Tasks that replace parts of the standard library in their process: the engine goes on, and so do the jobs after them.

The engine binds what it needs before it imports the app. What user code itself calls is its own business.
"""

from typing import Any

import pytest

from tests.runners.driver import Driver, Start, job
from tests.servers.waiting import wait_until

TASKS = '''
import atexit, datetime, gc, importlib, json, resource, selectors, socket, threading, traceback, warnings

def broken(*arguments, **named):
    raise RuntimeError("replaced by user code")

def replace(name):
    """`module.name` or `module.Class.name`."""
    module, *path, last = name.split(".")
    place = importlib.import_module(module)
    for part in path:
        place = getattr(place, part)
    setattr(place, last, broken)

class Frozen:
    """As freezegun: in every loaded module, whatever name the function has there."""
    def __init__(self):
        kept = {}
        for name in ("time", "monotonic", "perf_counter", "time_ns", "monotonic_ns", "thread_time", "process_time"):
            kept[getattr(time, name)] = lambda at=kept: 1_000_000.0
        for module in list(sys.modules.values()):
            for name, value in list(getattr(module, "__dict__", {}).items()):
                if isinstance(value, type(time.time)) and value in kept and module.__name__ != "threading":
                    setattr(module, name, kept[value])

def replace_handlers():
    if threading.current_thread() is threading.main_thread():  # no other thread may
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, broken)

def close_streams():
    sys.stdout.close()
    sys.stderr.close()

def no_streams():
    sys.stdout = sys.stderr = None

PATCHES = {
    "freeze": Frozen,
    "close_streams": close_streams,
    "no_streams": no_streams,
    "warnings": lambda: warnings.simplefilter("error"),
    "recursion": lambda: sys.setrecursionlimit(50),
    "digits": lambda: sys.set_int_max_str_digits(640),
    "signals": replace_handlers,
    "exit": lambda: atexit.register(sys.exit, 7),
    "collector": lambda: (gc.freeze(), gc.disable()),
    "environment": lambda: os.environ.clear(),
    "timeout": lambda: socket.setdefaulttimeout(0.001),
}

def patch(names):
    for name in names:
        PATCHES[name]() if name in PATCHES else replace(name)

@app.task
def change(names: list) -> str:
    patch(names)
    return "changed"

@app.task
def speak(ctx: Context, long: str) -> dict:
    ctx.log("a line", size=1)
    ctx.progress(1, 2)
    return {"length": len(long), "digits": 12345678901234567890, "fraction": 0.5}

@app.task
def fail() -> None:
    raise ValueError("as it should")

@app.task
def wait(ctx: Context) -> str:
    ctx.wait_cancelled()
    return ctx.cancel_reason

@app.task
async def achange(names: list) -> str:
    patch(names)
    return "changed"

@app.task
async def aspeak(ctx: Context, long: str) -> dict:
    ctx.log("a line", size=1)
    ctx.progress(1, 2)
    return {"length": len(long), "digits": 12345678901234567890, "fraction": 0.5}

@app.task
async def afail() -> None:
    raise ValueError("as it should")

@app.task
async def await_(ctx: Context) -> str:
    await asyncio.Event().wait()

app.command("program", ["true"])
'''
PATCHES = [
    ["json.loads", "json.dumps", "json.JSONDecoder", "json.JSONEncoder"],
    ["json.JSONDecoder.decode", "json.JSONDecoder.raw_decode", "json.JSONEncoder.iterencode"],
    ["json.scanner.make_scanner", "json.decoder.scanstring", "json.encoder.c_make_encoder"],
    ["time.time", "time.monotonic", "time.perf_counter", "time.sleep", "time.process_time", "time.thread_time"],
    ["freeze"],
    ["os.getpid", "os.kill", "os._exit", "os.getppid", "os.listdir", "os.read", "os.write", "os.close", "os.getcwd"],
    ["socket.socket", "socket.socketpair", "socket.fromfd", "timeout"],
    ["socket.socket.send", "socket.socket.sendall", "socket.socket.recv", "socket.socket.close"],
    ["threading.Thread", "threading.Lock", "threading.RLock", "threading.Event", "threading.Condition"],
    ["threading.Thread.start", "threading.Thread.run", "threading.Timer"],
    ["resource.getrusage", "traceback.print_exc", "traceback.format_exception"],
    ["close_streams", "exit"],
    ["no_streams", "signals"],
    ["warnings", "digits"],
    ["recursion"],
    ["collector", "environment"],
]
FUNCTIONS = [name for names in PATCHES for name in names if "." in name]
# Each group is patched in a fresh process, before the engine does anything for the first time. Methods are replaced
# before their classes: afterwards they could not be reached.
GROUPS = {
    "functions-that-raise": sorted(FUNCTIONS, key=lambda name: name.count("."), reverse=True),
    "freeze": ["freeze", "warnings", "digits", "timeout"],
    "close-streams": ["close_streams", "exit", "collector"],
    "no-streams": ["no_streams", "signals", "environment"],
    "recursion": ["recursion"],
}
KINDS = {"one-slot": ("sync", 1), "two-slots": ("sync", 2), "async": ("async", 4)}
CASES = [
    *(
        pytest.param(names, *kind, id=f"{group}-{name}")
        for group, names in GROUPS.items()
        for name, kind in KINDS.items()
    ),
    *(
        pytest.param(names, *kind, id=f"{names[0]}-{name}", marks=pytest.mark.long)
        for names in PATCHES
        for name, kind in KINDS.items()
    ),
]
USED_BY_ASYNCIO = "socket.socket."  # it wakes its own loop through a socket
LONG = "x" * 300_000  # more than one read of the socket


@pytest.mark.parametrize(("names", "kind", "slots"), CASES)
def test_patched_library_does_not_reach_the_engine(start: Start, names: list[str], kind: str, slots: int) -> None:
    driver = start(TASKS, kind=kind, slots=slots).ready()
    mark = "a" if kind == "async" else ""
    if kind == "async":
        names = [name for name in names if not name.startswith(USED_BY_ASYNCIO)]
    driver.run(job(1, f"{mark}change", names=names))
    assert outcome(driver, "1.1") == {"kind": "succeeded", "result": "changed", "result_ref": None}
    check_jobs_run(driver, mark)
    check_ends(driver)


def test_command_whose_setup_fails_fails_alone(start: Start) -> None:
    driver = start(TASKS).ready()
    driver.run(job(1, "change", names=["os.pipe"]))
    outcome(driver, "1.1")
    driver.run(job(6, "program"))
    error = outcome(driver, "6.1")["error"]
    assert (error["code"], error["message"]) == ("RuntimeError", "replaced by user code")
    check_jobs_run(driver, "")
    check_ends(driver)


@pytest.mark.parametrize(("kind", "slots"), KINDS.values(), ids=KINDS)
def test_thread_class_that_the_app_replaces_at_import_does_not_reach_the_engine(
    start: Start, kind: str, slots: int
) -> None:
    driver = start(f"{TASKS}\nthreading.Thread = broken\n", kind=kind, slots=slots).ready()
    check_jobs_run(driver, "a" if kind == "async" else "")
    check_ends(driver)


def outcome(driver: Driver, attempt_id: str) -> dict[str, Any]:
    """Of the job, or the end of the runner, which would otherwise be waited for in vain."""
    wait_until(
        lambda: bool(driver.heard("done", id=attempt_id)) or driver.popen.poll() is not None,
        what=f"the end of {attempt_id}",
    )
    assert driver.heard("done", id=attempt_id), f"the runner has ended with {driver.popen.returncode}"
    return driver.outcome(attempt_id)


def check_jobs_run(driver: Driver, mark: str) -> None:
    for number in (2, 3):
        driver.run(job(number, f"{mark}speak", long=LONG))
        found = outcome(driver, f"{number}.1")
        assert found["kind"] == "succeeded", found
        assert found["result"]["length"] == len(LONG)
        assert driver.heard("progress", id=f"{number}.1", value={"done": 1, "total": 2})
        assert any(line["message"] == "a line" for frame in driver.heard("log") for line in frame["lines"])
    driver.run(job(4, f"{mark}fail"))
    error = outcome(driver, "4.1")["error"]
    assert (error["code"], error["message"]) == ("ValueError", "as it should")
    driver.run(job(5, "await_" if mark else "wait"))
    driver.wait("started", id="5.1")
    driver.send("cancel", id="5.1", reason="cancel_requested")
    outcome(driver, "5.1")


def check_ends(driver: Driver) -> None:
    driver.send("ping")
    driver.wait("pong")
    driver.send("give_back")
    driver.wait("returned")
    driver.send("stop")
    driver.wait_exit()


BREAKING = """
import builtins

def broken(*arguments, **named):
    raise RuntimeError("replaced by user code")

class Unprintable(Exception):
    def __str__(self):
        raise KeyboardInterrupt

def break_engine(way: str) -> None:
    if way == "message":
        raise Unprintable
    if way == "import":
        builtins.__import__ = broken
    else:
        builtins.isinstance = builtins.len = builtins.type = broken

@app.task
def change(way: str) -> None:
    break_engine(way)
    raise ValueError("as it should")

@app.task
async def achange(way: str) -> None:
    break_engine(way)
    raise ValueError("as it should")
"""


@pytest.mark.parametrize("way", ["message", "import", "builtins"])
@pytest.mark.parametrize(("kind", "slots"), KINDS.values(), ids=KINDS)
def test_job_ends_or_its_runner_does_where_user_code_breaks_the_engine(
    start: Start, kind: str, slots: int, way: str
) -> None:
    """An error of the engine's own in a coroutine was only logged, and its job stayed started for ever."""
    driver = start(BREAKING, kind=kind, slots=slots).ready()
    driver.run(job(1, "achange" if kind == "async" else "change", way=way))
    wait_until(
        lambda: bool(driver.heard("done", id="1.1")) or driver.popen.poll() is not None,
        what="the end of the job or of the runner",
    )
