"""The life of a runner: become one, import the app, say so, run jobs until told to stop or left alone."""

from __future__ import annotations

import gc
import os
import sys
from _thread import start_new_thread
from os import _exit
from time import process_time, sleep, thread_time

from holdfast.domain.errors import HoldfastError
from holdfast.domain.manifest import Kind
from holdfast.runners.child import loading, messages, tracing
from holdfast.runners.child.arguments import Arguments, parse
from holdfast.runners.child.capture import Capture
from holdfast.runners.child.execution import Executor, flush_standard_streams
from holdfast.runners.child.link import Link
from holdfast.runners.child.process import become_runner
from holdfast.runners.child.service import Server, Service
from holdfast.runners.child.threads import ThreadServer
from holdfast.runners.frames import ARTIFACTS_FLAG, DATABASE_FLAG
from holdfast.runners.usage import CpuClock
from holdfast.tasks.tracing import flush, set_up
from holdfast.webhooks.task import deliveries

EXIT_BROKEN = 2
_LONGEST_GOODBYE_SECONDS = 2.0
_FLUSH_SECONDS = 1.0


def main() -> None:
    arguments = parse(sys.argv[1:])
    become_runner(arguments.parent, arguments.memory)
    link = Link(arguments.descriptor)
    server = _server(arguments, link)
    gc.freeze()  # what the app imported stays: the collector need not walk it again and again
    # Not a `threading.Thread`: the import of the app may have replaced that, or how it starts.
    start_new_thread(link.listen, (server.handle,))
    server.serve()
    _say_goodbye()


def _server(arguments: Arguments, link: Link) -> Server:
    is_alone = arguments.kind is not Kind.ASYNC and arguments.slots == 1
    cpu_clock = CpuClock(process_time) if is_alone else _thread_clock
    try:
        app = loading.load(arguments.app)
        if flag := os.environ.get(DATABASE_FLAG):
            app.replace_store(flag)
        if flag := os.environ.get(ARTIFACTS_FLAG):
            app.replace_artifacts(flag)
        own = deliveries(app.tasks)
        manifest = [*app.manifest(), *(task.info() for task in own.values())]
        schedules, sources = app.declarations(), app.declared_sources()
    except (loading.Broken, HoldfastError) as error:  # the second one: the database flag makes no sense
        link.send(messages.frame("broken", error=str(error), stack=getattr(error, "stack", None)))
        flush_standard_streams()
        _exit(EXIT_BROKEN)
    set_up(tracing.SERVICE)  # after the import: a tracer provider of the app's own counts
    service = Service(link, Executor({**app.tasks, **own}, cpu_clock, arguments.term_grace_seconds, exclusive=is_alone))
    # After the import: what the app itself bound to the real streams, a log handler say, stays bound to those.
    Capture(service.only_context).install()
    link.send(messages.ready(manifest, schedules, sources, app.named_store, app.named_artifacts))
    if any(task.kind is Kind.COMMAND for task in manifest):
        _clear_up()
    if arguments.kind is Kind.ASYNC:
        from holdfast.runners.child.loop import LoopServer  # brings asyncio

        return LoopServer(service, arguments.slots)
    return ThreadServer(service, arguments.slots)


def _clear_up() -> None:
    """Behind a runner that was killed. Beside the first jobs: what a command leaves may be millions of files."""
    from holdfast.runners.commands.directories import remove_left_over

    start_new_thread(remove_left_over, ())


def _thread_clock(_now: float) -> float:
    return thread_time()


def _say_goodbye() -> None:
    """A normal exit, so that `atexit` and buffers work; but threads that user code left behind do not hold it up."""
    start_new_thread(_leave_after, (_LONGEST_GOODBYE_SECONDS,))
    flush(_FLUSH_SECONDS)
    flush_standard_streams()
    sys.exit(0)


def _leave_after(seconds: float) -> None:
    sleep(seconds)
    _exit(0)
