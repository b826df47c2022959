"""What is kept and what goes: retention, schedules, files of jobs."""

from __future__ import annotations

from scripts.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "purge-of-the-young",
        "A dead letter that has died anew since it was listed is not purged for its old age.",
        "stores/statements/retention.py",
        'return f"CASE WHEN j.state = :state THEN j.finished_at <= {_cutoff(words)} END"',
        'return "CASE WHEN j.state = :state THEN true END"',
        ("contract/test_purge.py::test_a_dead_letter_that_is_younger_than_what_was_asked_for_stays[sqlite]",),
    ),
    Mutant(
        "prune-without-the-state",
        "A job that was requeued before it is deleted stays, and is not taken for one that may go.",
        "stores/statements/retention.py",
        'return f"CASE WHEN j.state = :state THEN j.finished_at <= {_cutoff(words)} END"',
        'return f"coalesce(j.finished_at <= {_cutoff(words)}, true)"',
        ("contract/test_retention.py::test_a_job_that_was_requeued_before_it_is_deleted_stays[sqlite]",),
    ),
    Mutant(
        "prune-at-any-age",
        "Only what has been kept for long enough is chosen.",
        "stores/statements/retention.py",
        'AND j.queue = :queue AND j.state = :state AND j.finished_at <= {_cutoff(words)}"""',
        'AND j.queue = :queue AND j.state = :state"""',
        ("contract/test_retention.py::test_with_a_job_go_its_log_lines_and_artifacts[sqlite]",),
    ),
    Mutant(
        "histories-at-any-age",
        "A history is kept for its own age after its job was pruned.",
        "stores/statements/retention.py",
        "AND e.from_state = :state\n          AND e.at <= {_cutoff(words)}",
        "AND e.from_state = :state",
        ("contract/test_ages_in_a_group.py::test_a_young_history_stays_when_an_old_one_of_its_queue_and_state_goes",),
    ),
    Mutant(
        "files-with-the-job-stay-on-record",
        "With a job go its log lines and the rows of its artifacts.",
        "stores/verbs/retaining.py",
        '    for table in ("holdfast_logs", "holdfast_artifacts"):\n'
        '        transaction.run(sql.forget(table), {"ids": ids})\n'
        "    gone",
        "    gone",
        ("contract/test_retention.py::test_with_a_job_go_its_log_lines_and_artifacts[sqlite]",),
    ),
    Mutant(
        "refusals-of-living-jobs-forgotten",
        "The evidence of a zombie stays as long as its job is known.",
        "stores/statements/retention.py",
        "            AND NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.id = o.job_id)\n"
        "            AND NOT EXISTS (SELECT 1 FROM holdfast_events e WHERE e.job_id = o.job_id) {",
        "            {",
        ("contract/test_retention.py::test_old_refusals_of_jobs_that_nobody_knows_go[sqlite]",),
    ),
    Mutant(
        "two-at-the-door",
        "Whoever retires histories is alone at the door, and nobody waits there.",
        "stores/statements/retention.py",
        'lock = "FOR UPDATE SKIP LOCKED" if words.postgres else ""\n    return f"SELECT value FROM holdfast_meta',
        'lock = "FOR UPDATE NOWAIT" if words.postgres else ""\n    return f"SELECT value FROM holdfast_meta',
        ("contract/test_retention.py::test_nobody_waits_at_the_door[postgres]",),
    ),
    Mutant(
        "tick-fires-twice",
        "An instant that has fired does not fire again, whatever became of its schedule.",
        "stores/verbs/firing.py",
        "return [tick for tick in ticks if tick.planned_at in new]",
        "return ticks",
        (
            "contract/test_schedules.py::test_an_instant_that_has_fired_does_not_fire_again_whatever_became_of_the_schedule[sqlite]",
        ),
    ),
    Mutant(
        "every-scheduler-wins",
        "Of many that look at once one fires a schedule.",
        "stores/verbs/firing.py",
        "        if not _advance(transaction, schedule, row, firing, now):\n"
        "            return [], firing.next_at  # somebody else has it, who leaves it like this\n",
        "        _advance(transaction, schedule, row, firing, now)\n",
        ("contract/test_schedules.py::test_a_schedule_that_somebody_has_locked_is_passed_by[postgres]",),
    ),
    Mutant(
        "schedule-read-before-its-change",
        "Who read a schedule before it was changed does not fire it.",
        "stores/statements/schedules.py",
        " AND j.revision = :revision AND j.paused_at IS NULL",
        "",
        ("contract/test_schedules.py::test_who_read_it_before_it_was_changed_does_not_fire_it[sqlite]",),
    ),
    Mutant(
        "tick-without-its-job",
        "A tick and its job are one commit: a firing that fails half way leaves nothing.",
        "stores/verbs/firing.py",
        "        fresh = _insert_ticks(transaction, planned)\n"
        "        return _with_jobs(transaction, schedule, fresh, defaults), firing.next_at",
        "        fresh = _insert_ticks(transaction, planned)\n"
        "    with database.transaction() as transaction:\n"
        "        return _with_jobs(transaction, schedule, fresh, defaults), firing.next_at",
        ("contract/test_schedules.py::test_a_firing_that_fails_half_way_leaves_nothing[sqlite]",),
    ),
    Mutant(
        "one-broken-schedule-stops-all",
        "A schedule that cannot fire keeps no other from firing.",
        "stores/verbs/firing.py",
        "            except Exception as error:  # whatever is wrong with this one must not keep "
        "the others from firing\n",
        "            except StopIteration as error:\n",
        ("contract/test_schedules.py::test_a_broken_schedule_keeps_no_other_from_firing[sqlite]",),
    ),
    Mutant(
        "running-attempt-collected",
        "The files of an attempt that is running are not collected.",
        "domain/artifacts.py",
        "return stored in self.references or (job_id, attempt) in self.running",
        "return stored in self.references",
        ("unit/test_artifacts.py::test_what_is_on_record_or_running_is_needed",),
    ),
    Mutant(
        "young-files-collected",
        "What is young is not collected.",
        "maintenance/collecting.py",
        "if file.modified < before and _is_nobodys(name, file, live)]",
        "if _is_nobodys(name, file, live)]",
        ("contract/test_artifacts.py::test_what_is_young_stays[sqlite]",),
    ),
    Mutant(
        "store-asked-before-the-listing",
        "Files are listed first and the store is asked afterwards.",
        "maintenance/collecting.py",
        "    stored = {name: list(files.files(name)) for name in names}\n    live = store.live_artifacts(names)\n",
        "    live = store.live_artifacts(names)\n    stored = {name: list(files.files(name)) for name in names}\n",
        ("contract/test_collecting_beside_work.py::test_what_an_attempt_saves_while_files_are_collected_stays",),
    ),
    Mutant(
        "name-with-dots",
        "No part of an artifact's name may lead out of its folder.",
        "domain/artifacts.py",
        '    if segment.startswith("."):\n',
        '    if segment.startswith(".") and segment != "..":\n',
        ("unit/test_artifacts.py::test_any_other_name_is_refused_and_the_rule_is_named",),
    ),
    Mutant(
        "artifact-of-another-attempt",
        "A report speaks of files of its own attempt, and of no other's.",
        "domain/artifacts.py",
        "    if (artifact.job_id, artifact.attempt) != (job_id, attempt):\n",
        "    if artifact.job_id != job_id:\n",
        ("unit/test_artifacts.py::test_a_report_may_only_speak_of_its_own_files",),
    ),
    Mutant(
        "reference-not-parsed",
        "A reference names a file of a job, and no other place.",
        "artifacts/local.py",
        "        parse_reference(reference)\n",
        "",
        ("artifacts/test_stores.py::test_no_name_escapes[folder]",),
    ),
    Mutant(
        "link-followed",
        "A symbolic link below the root is never followed.",
        "artifacts/local.py",
        "            if path.is_symlink():\n                raise",
        "            if path.is_symlink() and not path.exists():\n                raise",
        ("artifacts/test_stores.py::test_a_symbolic_link_is_not_followed[job]",),
    ),
    Mutant(
        "file-written-in-place",
        "Under its own name a file is whole or not there: a write that fails leaves what was there.",
        "artifacts/local.py",
        '    temporary = path.parent / f"{TEMPORARY}{secrets.token_hex(8)}"\n    made',
        "    temporary = path\n    made",
        ("artifacts/test_stores.py::test_a_write_that_fails_leaves_what_was_there",),
    ),
    Mutant(
        "write-to-a-replaced-file",
        "A SQLite file that was replaced while it was open takes no writes.",
        "stores/sqlite.py",
        "                if not driver.writes_current(self._file, self._wal):",
        "                if False:",
        ("chaos/test_sqlite_replaced.py::test_write_is_rejected_with_the_way_out",),
    ),
    Mutant(
        "new-file-beside-the-previous-log",
        "A replaced SQLite file is not opened beside the write-ahead log of the previous one.",
        "stores/sqlite.py",
        "    if opened.is_beside(found):",
        "    if False:",
        ("chaos/test_sqlite_replaced.py::test_write_is_rejected_with_the_way_out",),
    ),
    Mutant(
        "removed-file-made-anew",
        "A running process does not create a SQLite file again that was removed.",
        "stores/sqlite.py",
        "        if opened and found.database",
        "        if False and found.database",
        ("chaos/test_sqlite_replaced.py::test_removed_file_is_not_made_anew_by_one_more_connection",),
    ),
)
