"""What somebody reads on a terminal shows a hostile text and does not obey it: the command line, in words and as JSON,
and the log."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest

from holdfast.observe.logs import LogFormat, configure
from holdfast.wiring.sql import open_store
from tests.acceptance.command_line import InProcess
from tests.dashboard.fleet import Fleet, Names
from tests.security.corpus import HOSTILE

# Escape sequences begin with one of the first two kinds; the others turn a line round, or hide a part of it.
STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
TEXTS = {name: text for name, text in HOSTILE.items() if STEERING.search(text) and "\0" not in text}
STORABLE = {name: text for name, text in TEXTS.items() if text.encode(errors="replace").decode() == text}


@pytest.fixture
def holdfast(tmp_path: Path) -> InProcess:
    return InProcess(tmp_path, f"sqlite:///{tmp_path / 'jobs.db'}")


def test_what_commands_show_of_a_hostile_fleet_steers_no_terminal(holdfast: InProcess) -> None:
    assert holdfast.database is not None
    store = open_store(holdfast.database, create=True)
    fleet = Fleet(store, Names(text=" ".join(STORABLE.values())))
    fleet.furnish()
    jobs = [fleet.succeeded(), fleet.failed(), fleet.troubled(), fleet.running().job_id]
    store.close()
    shown = [("jobs", verb, job_id) for job_id in jobs for verb in ("show", "logs")]
    for words in (("jobs", "list"), ("dead", "list"), ("workers",), ("jobs", "result", jobs[0]), *shown):
        for style in ((), ("--json",)):
            printed = holdfast(*words, *style)
            steering = STEERING.search(printed.out + printed.err)
            if "result" in words and not style:
                continue  # into a pipe, as it is, for whatever reads it
            assert steering is None, (words, style, printed.out[steering.start() - 40 :][:80])
    document = holdfast("jobs", "show", jobs[0], "--json").succeeded().document
    assert document["result"] == {"said": fleet.names.text}, "as JSON it is the same text"


def test_what_is_typed_is_not_obeyed_when_it_is_repeated(holdfast: InProcess) -> None:
    for text in TEXTS.values():
        typed = text.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")  # as a process gets it
        for words in ((typed,), ("enqueue", typed), ("jobs", "show", typed), ("enqueue", "t", typed)):
            printed = holdfast(*words)
            assert printed.code in (1, 2), words
            assert STEERING.search(printed.out + printed.err) is None, (words, printed)
    assert not list(holdfast.folder.iterdir()), "nothing was made of it"


@pytest.mark.parametrize("format", ["pretty", "json"])
def test_the_log_obeys_no_text_either(format: LogFormat) -> None:
    stream = io.StringIO()
    logger = configure(format, "debug", stream)
    for text in (*TEXTS.values(), *HOSTILE.values()):
        logger.warning("job failed", error=text, nested={"text": [text]}, kept=text)
    written = stream.getvalue()
    assert STEERING.search(written) is None
    lines = written.splitlines()
    assert len(lines) == len(TEXTS) + len(HOSTILE), "no text begins a line of its own"
    if format == "json":
        assert [json.loads(line)["kept"] for line in lines[len(TEXTS) :]] == list(HOSTILE.values())
