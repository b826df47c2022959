"""What the tasks of a test say of themselves: one line a run, appended to a file so that no line is ever torn."""

from __future__ import annotations

from tests.worker.site import Site

# Goes before the tasks of a module: `note("word")` writes the word, the job's id and its attempt.
NOTE = """
def note(word, *more):
    context = current()
    line = " ".join(str(part) for part in (word, context.job.id, context.attempt, *more)) + "\\n"
    file = os.open(Path(__file__).with_name("notes.txt"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line.encode())
    os.close(file)

"""


def notes(site: Site, word: str) -> list[list[str]]:
    """Of each line with this word the rest: job id, attempt, and what else was said."""
    path = site.folder / "notes.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [rest for first, *rest in (line.split() for line in lines) if first == word]


def noted(site: Site, word: str) -> list[str]:
    """The job ids, sorted."""
    return sorted(rest[0] for rest in notes(site, word))
