"""The report as one HTML file, to be kept, mailed and opened anywhere: it loads nothing and runs nothing.

It has no script at all. Its only style is the dashboard's and a little of its own, named by its digest in the policy;
whatever comes from the run is text: escaped by the template engine, with what cannot be seen shown as its number.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from holdfast.serve.dashboard import words
from holdfast.torture import report
from holdfast.torture.page_drawing import draw
from holdfast.torture.page_recovery import recovery_scale
from holdfast.torture.results import Result

LONGEST_HISTORY = 400  # lines
MOST_CASES = 20  # of one rule


def page(result: Result) -> str:
    all_kinds = report.kinds(result)
    text = (
        _environment()
        .get_template("page.html")
        .render(
            result=result,
            load=result.load,
            report=report,
            kinds=all_kinds,
            rules=report.rules(result),
            violated=report.violated(result),
            drawing=draw(result),
            scale=recovery_scale(result),
            rate=report.jobs_per_second(result),
            late=sum(kind.late + kind.not_seen for kind in all_kinds),
            longest=max((kind.longest for kind in all_kinds if kind.longest is not None), default=None),
            facts=tuple(_facts(result)),
            most_lines=LONGEST_HISTORY,
            most_cases=MOST_CASES,
        )
    )
    # Half of a character that came from somewhere must not keep the report from being written.
    return text.encode("utf-8", "backslashreplace").decode()


def _facts(result: Result) -> Iterator[tuple[str, str]]:
    load = result.load
    yield "store", result.store
    yield from result.versions.items()
    yield "began at", result.began_at
    yield "faults for", words.duration(result.seconds)
    yield "lease", words.duration(result.lease_seconds)
    yield "acknowledged to clients", words.number(load.acknowledged)
    yield "attempts", words.number(load.attempts)
    yield "seen to begin by user code", words.number(load.executions)
    yield "schedule ticks", words.number(load.ticks)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("holdfast.torture", "templates"),
        autoescape=True,
        finalize=_seen,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= words.FILTERS
    style = _style()
    environment.globals |= {"style": Markup(style), "policy": _policy(style), "icon": _icon(), "NOTHING": words.NOTHING}
    return environment


def _seen(value: object) -> object:
    """Of everything that a template writes; so none can forget it."""
    return words.seen(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _style() -> str:
    dashboard = files("holdfast.serve.dashboard") / "static" / "holdfast.css"
    own = files("holdfast.torture") / "templates" / "page.css"
    return dashboard.read_text(encoding="utf-8") + own.read_text(encoding="utf-8")


def _policy(style: str) -> str:
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


def _icon() -> str:
    mark = files("holdfast.serve.dashboard") / "static" / "mark.svg"
    return f"data:image/svg+xml;base64,{base64.b64encode(mark.read_bytes()).decode()}"
