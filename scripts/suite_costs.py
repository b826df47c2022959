"""A pytest plugin that reports where the time of a run goes: make test ARGS="-p scripts.suite_costs"

Prints the seconds and CPU seconds of tests by folder and by file, and those of fixtures. CPU seconds include the
processes that a test started and waited for. Servers that all tests share appear only in the total.
"""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import PurePath
from typing import cast

import pytest

COST = "suite_cost"
FIXTURE_COST = "suite_cost_of_fixture"
MAX_ROWS = 20

_last_cpu = pytest.StashKey[float]()


def used_cpu() -> float:
    """CPU seconds of this process and of all children that it has waited for."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_last_cpu] = used_cpu()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """One report for each of setup, call and teardown; xdist carries it to the controller."""
    report = yield
    cpu = used_cpu()
    report.user_properties = [*report.user_properties, (COST, (report.duration, cpu - item.stash[_last_cpu]))]
    item.stash[_last_cpu] = cpu
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    began, cpu = time.monotonic(), used_cpu()
    try:
        return (yield)
    finally:
        cost = (fixturedef.argname, time.monotonic() - began, used_cpu() - cpu)
        if isinstance(request.node, pytest.Item):
            request.node.user_properties.append((FIXTURE_COST, cost))
        else:  # of a wider scope: counted with the test that needed it first
            request._pyfuncitem.user_properties.append((FIXTURE_COST, cost))


@dataclass
class Cost:
    seconds: float = 0.0
    cpu: float = 0.0
    count: int = 0

    def add(self, seconds: float, cpu: float, count: int) -> None:
        self.seconds += seconds
        self.cpu += cpu
        self.count += count


class Reporter:
    """Adds up the costs of all reports, in the process that prints them."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._tables = {name: defaultdict[str, Cost](Cost) for name in ("folder", "file", "test", "fixture")}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        places = {"folder": PurePath(file).parent.as_posix(), "file": file, "test": report.nodeid}
        for name, value in report.user_properties:
            if name == COST:
                seconds, cpu = cast("tuple[float, float]", value)
                for table, place in places.items():
                    self._tables[table][place].add(seconds, cpu, int(report.when == "call"))
            elif name == FIXTURE_COST and report.when == "teardown":  # every report carries those of its test so far
                fixture, seconds, cpu = cast("tuple[str, float, float]", value)
                self._tables["fixture"][fixture].add(seconds, cpu, 1)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, costs in self._tables.items():
            terminalreporter.section(f"costs by {name}")
            rows = sorted(costs.items(), key=lambda row: row[1].cpu, reverse=True)
            for place, cost in rows if name == "folder" else rows[:MAX_ROWS]:
                terminalreporter.write_line(f"{cost.seconds:9.1f} s {cost.cpu:9.1f} CPU s {cost.count:6}  {place}")
        tests = sum(cost.cpu for cost in self._tables["folder"].values())
        elapsed = time.monotonic() - self._began
        terminalreporter.write_line(f"{elapsed:.0f} s; tests {tests:.0f} CPU s, with shared servers {used_cpu():.0f}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Reporter())
