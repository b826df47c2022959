"""python -m scripts.mutants.sample: change random expressions of the code, and count which changes a test notices.

The table of `python -m scripts.mutants` holds the lines that keep a promise. This draws from all lines, so that a
change of the suite can be measured: the same seed draws the same mutants as long as the code is the same.

    make coverage
    python -m scripts.mutants.sample [--count 200] [--seed 1] [--part 0/1] [--coverage FILE] [--out FILE]

--part       0/2 and 1/2 are the halves of the sample, for two processes with a file each
--coverage   what `make coverage` has measured: it says which tests run a line
--out        JSON, a finding a line; what it already holds is not run again
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from scripts.mutants.ground import copied
from scripts.mutants.mutant import PACKAGE, REPOSITORY, Mutant
from scripts.mutants.running import servers
from scripts.mutants.trial import Trials

PACKAGES = ("domain", "stores", "worker", "runners")
MAX_TESTS = 40  # for one mutant: those that run the line in its process, the narrowest first
# What runs the lines of a package in processes of its own, where no context tells so.
PROCESS_TESTS: dict[str, tuple[str, ...]] = {
    "domain": (),
    "stores": (),
    "worker": ("tests/worker/test_first_steps.py", "tests/worker/test_killed_runner.py"),
    "runners": ("tests/runners",),
}
COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}


@dataclass(frozen=True, slots=True)
class Change:
    file: str  # below src/holdfast
    line: int
    begin: int  # offsets in the file's text
    end: int
    new: str

    def mutant(self, text: str) -> Mutant:
        changed = text[: self.begin] + self.new + text[self.end :]
        return Mutant(f"{self.file}:{self.line}", "", self.file, text, changed, ())


class Source:
    """A module's text, and every change of one expression in it."""

    def __init__(self, path: Path) -> None:
        self.file = path.relative_to(REPOSITORY / PACKAGE).as_posix()
        self.text = path.read_text(encoding="utf-8")
        starts = [0]
        for line in self.text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts
        self._lines = self.text.splitlines()

    def changes(self) -> Iterator[Change]:
        for node in _code(ast.parse(self.text)):
            yield from self._changes_of(node)

    def _changes_of(self, node: ast.AST) -> Iterator[Change]:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield self._between(left, right, f" {COMPARISONS[type(operator)]} ")
            case ast.BoolOp(op=operator, values=values):
                word = " or " if isinstance(operator, ast.And) else " and "
                yield self._between(values[0], values[1], word)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._replaced(node, self._source(operand))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in ARITHMETIC:
                yield self._between(left, right, f" {ARITHMETIC[type(operator)]} ")
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield self._replaced(test, f"(not ({self._source(test)}))")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield self._replaced(value, "None")
            case ast.Expr(value=ast.Call()):
                yield self._replaced(node, "pass")
            case ast.Constant(value=bool() as value):
                yield self._replaced(node, str(not value))
            case ast.Constant(value=int() | float() as value):
                yield self._replaced(node, repr(value + 1))

    def _between(self, left: ast.expr, right: ast.expr, operator: str) -> Change:
        begin, end = self._offset(left, at_end=True), self._offset(right)
        old = self.text[begin:end]
        # Parentheses and line ends between the two operands stay where they are.
        kept_left = old[: len(old) - len(old.lstrip(") \n"))]
        kept_right = old[len(old.rstrip("( \n")) :]
        return Change(self.file, left.lineno, begin, end, kept_left.rstrip(" ") + operator + kept_right.lstrip(" "))

    def _replaced(self, node: ast.AST, new: str) -> Change:
        begin, end = self._offset(node), self._offset(node, at_end=True)
        return Change(self.file, getattr(node, "lineno", 1), begin, end, new)

    def _source(self, node: ast.AST) -> str:
        return self.text[self._offset(node) : self._offset(node, at_end=True)]

    def _offset(self, node: ast.AST, *, at_end: bool = False) -> int:
        line, column = ("end_lineno", "end_col_offset") if at_end else ("lineno", "col_offset")
        number = int(getattr(node, line))
        # The columns of a syntax tree count bytes.
        before = self._lines[number - 1].encode()[: int(getattr(node, column))].decode()
        return self._starts[number - 1] + len(before)


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Without annotations, assertions, text with fields, and what is only for type checkers."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Assert | ast.JoinedStr | ast.Raise):
            continue
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        yield child
        if isinstance(child, ast.AnnAssign):
            yield from _code(ast.Expression(child.value)) if child.value else ()
        elif not isinstance(child, ast.arg):
            yield from _code(child)


def draw(count: int, seed: int) -> list[tuple[Change, Mutant]]:
    sources = [Source(path) for package in PACKAGES for path in sorted((REPOSITORY / PACKAGE / package).rglob("*.py"))]
    drawable = [(source, change) for source in sources for change in source.changes()]
    random.Random(seed).shuffle(drawable)
    found: list[tuple[Change, Mutant]] = []
    for source, change in drawable:
        mutant = change.mutant(source.text)
        if len(found) < count and _compiles(mutant.new) and mutant.new != mutant.old:
            found.append((change, mutant))
    return found


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


class Selection:
    """Which tests run a line, from a coverage file."""

    def __init__(self, coverage: Path) -> None:
        self._database = sqlite3.connect(coverage)
        self._breadth = dict(
            self._database.execute("SELECT context_id, count(*) FROM arc GROUP BY context_id").fetchall()
        )

    def close(self) -> None:
        self._database.close()

    def tests(self, change: Change) -> list[str]:
        of_line = self._found(change.file, "AND (a.fromno = :line OR a.tono = :line)", change.line)
        of_file = self._found(change.file, "", change.line)
        return list(dict.fromkeys([*of_line, *of_file]))[:MAX_TESTS]

    def _found(self, file: str, restriction: str, line: int) -> list[str]:
        rows = self._database.execute(
            "SELECT DISTINCT c.id, c.context FROM arc a JOIN file f ON f.id = a.file_id JOIN context c ON"
            f" c.id = a.context_id WHERE f.path LIKE :path AND c.context != '' {restriction}",
            {"path": f"%/{PACKAGE}/{file}", "line": line},
        ).fetchall()
        rows.sort(key=lambda row: self._breadth[row[0]])
        return [name for _id, context in rows if (name := _node_id(context))]


def _node_id(context: str) -> str | None:
    """`tests.unit.test_job.test_names` is a function in a file that is still there."""
    module, _, function = context.rpartition(".")
    path = REPOSITORY / (module.replace(".", "/") + ".py")
    there = path.exists() and f"def {function}(" in path.read_text(encoding="utf-8")
    return f"{module.replace('.', '/')}.py::{function}" if there else None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        "python -m scripts.mutants.sample", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--coverage", type=Path, default=REPOSITORY / ".cache" / "coverage" / "data")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part", default="0/1", metavar="K/N")
    parser.add_argument("--out", type=Path, default=REPOSITORY / ".cache" / "sample.jsonl")
    options = parser.parse_args(arguments)
    findings = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    known = {(each["file"], each["begin"]) for each in findings}
    part, parts = map(int, options.part.split("/"))
    with (
        closing(Selection(options.coverage)) as selection,
        copied() as ground,
        servers(options.count) as urls,
        closing(Trials(ground, urls)) as trials,
        options.out.open("a", encoding="utf-8") as out,
    ):
        for change, mutant in draw(options.count, options.seed)[part::parts]:
            if (change.file, change.begin) in known:
                continue
            with ground.planted(mutant):
                near, red = selection.tests(change), None
                for tests in (near, PROCESS_TESTS[change.file.partition("/")[0]]):
                    trial = trials.run(tests) if tests else None
                    if trial is not None and trial.code not in (0, 5):
                        red = trial.red[0].test if trial.red else "not even a report"
                        break
            finding = {
                "file": change.file, "line": change.line, "begin": change.begin, "red": red,
                "old": mutant.old[change.begin : change.end], "new": change.new, "near": len(near),
            }  # fmt: skip
            findings.append(finding)
            out.write(json.dumps(finding) + "\n")
            out.flush()
            print(f"{'killed' if red else 'SURVIVED':9} {change.file}:{change.line}  {red or ''}", file=sys.stderr)
    killed = sum(finding["red"] is not None for finding in findings)
    print(f"{killed} of {len(findings)} random mutants killed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
