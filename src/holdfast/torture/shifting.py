"""Shift the wall clock of this process by the number of seconds in a file; standard library only.

The file holds one number of eight bytes, mapped into memory: whoever writes it moves the clocks of every process that
has it mapped, at once, also of forked ones; to read it costs less than a microsecond. Everything in Python's `time` and
`datetime` that tells the time of day is replaced. Monotonic clocks are left alone: nobody can set those. So is what
asks the kernel by itself: times of files, SQLite's own functions, other programs.
"""

from __future__ import annotations

import ctypes
import datetime
import functools
import gc
import mmap
import os
import struct
import time
from collections.abc import Callable
from typing import Any

NUMBER = struct.Struct("d")
NANOSECONDS = 1_000_000_000
WALL_CLOCKS = {
    getattr(time, name) for name in ("CLOCK_REALTIME", "CLOCK_REALTIME_COARSE", "CLOCK_TAI") if hasattr(time, name)
}


def open_number(path: str) -> mmap.mmap:
    """To be read by everybody and written by one."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        return mmap.mmap(descriptor, NUMBER.size)
    finally:
        os.close(descriptor)


def shift_by(path: str) -> None:
    memory = open_number(path)
    read = NUMBER.unpack_from

    def offset() -> float:
        seconds: float = read(memory)[0]
        return seconds

    shift_time(offset)
    shift_datetime()


def shift_time(offset: Callable[[], float]) -> None:
    real_time, real_time_ns = time.time, time.time_ns
    real_clock, real_clock_ns = time.clock_gettime, time.clock_gettime_ns

    def nanoseconds() -> int:
        return round(offset() * NANOSECONDS)

    time.time = lambda: real_time() + offset()
    time.time_ns = lambda: real_time_ns() + nanoseconds()
    time.clock_gettime = lambda clock: real_clock(clock) + (offset() if clock in WALL_CLOCKS else 0)
    time.clock_gettime_ns = lambda clock: real_clock_ns(clock) + (nanoseconds() if clock in WALL_CLOCKS else 0)
    time.localtime, time.gmtime, time.ctime = map(from_seconds, (time.localtime, time.gmtime, time.ctime))
    time.asctime = from_parts(time.asctime)
    time.strftime = from_parts(time.strftime)


def from_seconds(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of seconds since 1970; without any, of now."""

    @functools.wraps(function)
    def shifted(seconds: float | None = None, /) -> Any:
        return function(time.time() if seconds is None else seconds)

    return shifted


def from_parts(function: Callable[..., Any]) -> Callable[..., Any]:
    """Of year, month, day and so on, which come last; without them, of now."""
    needed = 1 if function is time.strftime else 0  # the format

    @functools.wraps(function)
    def shifted(*arguments: Any) -> Any:
        return function(*arguments) if len(arguments) > needed else function(*arguments, time.localtime())

    return shifted


def shift_datetime() -> None:
    """In the types themselves, which are built in: a subclass in their place would not be what drivers make, what
    `type(x) is datetime` asks for, or what a pickle names."""

    def now(cls: type[datetime.datetime], tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return cls.fromtimestamp(time.time(), tz)

    def utcnow(cls: type[datetime.datetime]) -> datetime.datetime:
        return cls.fromtimestamp(time.time(), datetime.UTC).replace(tzinfo=None)

    def today(cls: type[Any]) -> Any:
        return cls.fromtimestamp(time.time())

    replace_in(datetime.datetime, now=now, utcnow=utcnow, today=today)
    replace_in(datetime.date, today=today)


def replace_in(built_in: type, **methods: Callable[..., Any]) -> None:
    # What `vars` shows is a view; what is behind it can be changed, if Python is told to forget what it has looked up.
    [names] = gc.get_referents(vars(built_in))
    for name, method in methods.items():
        names[name] = classmethod(method)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(built_in))
