"""Run some tests in the copy, one pytest process at a time, and judge what they say of a mutant.

Some mutants let processes outlive those who should have ended them. Whoever runs trials adopts such orphans, and a
trial ends with the death of all that it left.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from holdfast.runners.descendants import children, kill_strays, kill_tree, reap
from holdfast.runners.prctl import set_child_subreaper
from scripts.mutants import witness
from scripts.mutants.ground import Ground
from tests.servers.waiting import DEADLINE_VARIABLE

TEST_SECONDS = 90
WAIT_SECONDS = 30  # what a mutant prevents never happens: a test that waits for it must give up before it is ended
OPTIONS = (
    "-q", "-p", "no:cacheprovider", "-p", "scripts.mutants.witness", "--timeout", str(TEST_SECONDS),
    "-m", "not long",  # what `make test` does not run protects no commit
    "-W", "ignore::pytest.PytestAssertRewriteWarning",  # of libraries that were loaded before
)  # fmt: skip
# Not what a test found out, but a mutant that is no program any more; or a machine that was too busy.
_FOUND_NOTHING_OUT = re.compile(
    r"^E\s+(\S*\b(ImportError|ModuleNotFoundError|IndentationError|NameError|UnboundLocalError|SyntaxError)\b"
    r"|.*(syntax error|Undefined(Column|Table|Function|Object)|no such (column|table|function)|from pytest-timeout))",
    re.MULTILINE,
)


class Verdict(StrEnum):
    KILLED = "killed"
    SURVIVED = "survived"
    BROKEN = "broken"  # the mutant does not run at all, or the tests do not: nothing is known


@dataclass(frozen=True, slots=True)
class Red:
    """A test that did not pass."""

    test: str
    when: str  # collect, setup, call or teardown
    text: str

    @property
    def tells(self) -> bool:
        """Did the test find it out?"""
        return self.when in ("call", "teardown") and _FOUND_NOTHING_OUT.search(self.text) is None


@dataclass(frozen=True, slots=True)
class Trial:
    code: int
    red: tuple[Red, ...]
    seconds: float
    output: str

    @property
    def green(self) -> bool:
        return self.code == 0 and not self.red

    @property
    def verdict(self) -> Verdict:
        if self.green:
            return Verdict.SURVIVED
        return Verdict.KILLED if self.code == 1 and any(red.tells for red in self.red) else Verdict.BROKEN

    @property
    def killers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(red.test for red in self.red if red.tells))


class Trials:
    """Runs tests in the copy. Whoever makes one is, or becomes, the subreaper of what they leave behind."""

    def __init__(self, ground: Ground, servers: Mapping[str, str]) -> None:
        set_child_subreaper()
        self._ground = ground
        self._servers = servers
        self._said = ground.root.parent / "said.txt"
        self._heard = ground.root.parent / "heard.jsonl"
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "scripts.mutants.nursery"],
            cwd=ground.root,
            env=ground.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def close(self) -> None:
        """Whatever is under way ends with it."""
        reap(kill_tree(self._nursery.pid))
        self._nursery.wait()
        for pipe in (self._nursery.stdin, self._nursery.stdout):
            if pipe is not None:
                pipe.close()

    def run(self, tests: Sequence[str], *, stop_early: bool = True) -> Trial:
        self._heard.unlink(missing_ok=True)
        known = children(os.getpid())
        began = time.monotonic()
        code = self._pytest([*OPTIONS, *(["-x"] if stop_early else []), *tests], TEST_SECONDS * (len(tests) + 1))
        reap(kill_strays(os.getpid(), known))
        lines = self._heard.read_text(encoding="utf-8").splitlines() if self._heard.exists() else []
        output = self._said.read_text(encoding="utf-8", errors="replace")
        return Trial(code, tuple(Red(**json.loads(line)) for line in lines), time.monotonic() - began, output)

    def _pytest(self, arguments: Sequence[str], seconds: float) -> int:
        environment = {**self._servers, witness.FILE: str(self._heard), DEADLINE_VARIABLE: str(WAIT_SECONDS)}
        request = {"arguments": arguments, "environment": environment, "output": str(self._said)}
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(json.dumps(request).encode() + b"\n")
        pid = int(self._nursery.stdout.readline())
        if not select.select([self._nursery.stdout], [], [], seconds)[0]:
            kill_tree(pid)
        return int(self._nursery.stdout.readline())
