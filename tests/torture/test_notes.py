"""What a process wrote down is there after its death, but for a last line that was cut."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.torture import notes
from holdfast.torture.evidence import Evidence, Told, gather, notes_about
from holdfast.torture.notes import Notebook, read_notes

ONE, OTHER = "01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058"
ALL: list[notes.Note] = [
    notes.Intended([ONE, OTHER], "add"),
    notes.Acknowledged([ONE], "add", "http"),
    notes.Claimed(ONE, 1, "5f0c", "contract-1"),
    notes.Reported(ONE, 1, "5f0c", "fail", False, "lease_lost"),
    notes.Operated(ONE, "cancel", True, "running"),
    notes.Began(ONE, 2, 17),
    notes.Ended(ONE, 2, 17),
    notes.Unavailable([ONE], "add", "remote", 0.1, "the store is away"),
]


def written(folder: Path, *some: notes.Note, by: str = "client-1") -> Path:
    notebook = Notebook(folder, by)
    notebook.write(*some)
    notebook.close()
    [path] = folder.glob(f"{by}.*")
    return path


def test_a_note_of_every_kind_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert {type(note).__name__ for note in ALL} == set(notes.KINDS)
    written(tmp_path, *ALL)
    found = list(read_notes(tmp_path))
    assert [noted.note for noted in found] == ALL
    assert {noted.by for noted in found} == {"client-1"}


@pytest.mark.parametrize("cut", [1, 2, 20])
def test_a_last_line_that_was_cut_is_passed_over(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path, *ALL)
    os.truncate(path, path.stat().st_size - cut)
    assert [noted.note for noted in read_notes(tmp_path)] == ALL[:-1]


def test_what_a_killed_process_wrote_is_there(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys, pathlib\n"
        "from holdfast.torture.notes import Began, Notebook\n"
        "Notebook(pathlib.Path(sys.argv[1]), 'runner').write(Began(sys.argv[2], 1, 1))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path), ONE], check=False)
    assert ended.returncode == -9
    assert [noted.note for noted in read_notes(tmp_path)] == [notes.Began(ONE, 1, 1)]


def test_notes_are_gathered_by_job(tmp_path: Path) -> None:
    written(tmp_path, *ALL)
    written(tmp_path, notes.Began(ONE, 2, 18), notes.Acknowledged([ONE], "add", "database"), by="runner")
    evidence = gather(tmp_path)
    assert evidence.jobs[OTHER] == Told(task="add", intended=True)
    told = evidence.jobs[ONE]
    assert (told.task, told.intended, told.acknowledged) == ("add", True, True)
    assert (told.began, told.ended) == ((2, 2), (2,))
    assert (told.claims, told.reports, told.operations) == ((ALL[2],), (ALL[3],), (ALL[4],))
    assert (evidence.acknowledged, evidence.executions) == (1, 2)


def test_an_answer_without_an_intention_is_no_intention() -> None:
    evidence = Evidence()
    evidence.add(notes.Acknowledged([ONE], "add", "http"))
    assert not evidence.jobs[ONE].intended


def test_the_notes_about_a_job_are_those_that_name_it(tmp_path: Path) -> None:
    written(tmp_path, *ALL)
    assert [noted.note for _, noted in notes_about(tmp_path, [OTHER])] == ALL[:1]
    assert len(list(notes_about(tmp_path, [ONE, OTHER]))) == len(ALL) + 1
    assert list(notes_about(tmp_path, [])) == []
