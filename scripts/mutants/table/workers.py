"""The supervisor: leases by its own clock, runners that end before anything is told, a way out that charges nothing."""

from __future__ import annotations

from scripts.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "no-local-deadline",
        "Nothing of ours runs under a lease that nobody has confirmed in time.",
        "worker/runs.py",
        "        if held.watched and now >= held.lease_kill_at:\n",
        "        if held.watched and now >= held.lease_kill_at and held.lost:\n",
        (
            "worker/test_lost_leases.py::test_without_an_answer_the_runner_is_killed_before_the_lease_is_over_and_the_job_released[sqlite]",
        ),
    ),
    Mutant(
        "lease-counted-from-the-answer",
        "A lease counts from when its heartbeat was sent, not from when it was answered.",
        "worker/heartbeats.py",
        "                self._book.confirm(held, sent_at)\n",
        "                self._book.confirm(held, now)\n",
        ("unit/worker/test_sent_at.py::test_a_heartbeat_that_was_answered_late_renews_from_when_it_was_sent",),
    ),
    Mutant(
        "claim-counted-from-the-answer",
        "A lease counts from when its claim was sent.",
        "worker/pickup.py",
        "self._taken(jobs, self._asked_at + brought.late_seconds)",
        "self._taken(jobs, now)",
        ("unit/worker/test_sent_at.py::test_a_claim_that_was_answered_late_counts_from_when_it_was_sent",),
    ),
    Mutant(
        "deadline-without-margin",
        "A runner is killed before its lease is over, not after.",
        "worker/leases.py",
        "return self.deadline - kill_margin(self.job.lease_seconds)",
        "return self.deadline + kill_margin(self.job.lease_seconds)",
        (
            "unit/worker/test_leases_that_end.py::test_a_runner_is_warned_and_then_killed_while_its_lease_still_holds[60.0]",
        ),
    ),
    Mutant(
        "late-claim-started",
        "A claim that took longer than its leases brings nothing that may be started.",
        "worker/supervisor.py",
        "        self.runs.enforce(self._stepped_at)  # what took longer than its leases brings "
        "nothing that may be started\n",
        "",
        (
            "unit/worker/test_leases_that_end.py::test_a_claim_that_took_longer_than_its_leases_is_not_dealt_to_a_runner",
        ),
    ),
    Mutant(
        "leases-enforced-late",
        "The first thing after every wait: nothing runs on under a lease that ran out while we slept.",
        "worker/supervisor.py",
        "        self._guarded(self.runs.enforce, now)\n",
        "",
        (
            "worker/test_stopped_supervisor.py::test_a_worker_that_slept_past_its_lease_kills_its_runner_and_its_report_is_refused[sqlite]",
        ),
    ),
    Mutant(
        "no-kill-when-the-lease-is-refused",
        "Who is told that its lease is lost kills its runner.",
        "worker/runs.py",
        '        if held.runner is not None:\n            held.runner.kill("lease lost")\n        elif',
        "        if held.runner is not None:\n            return\n        elif",
        (
            "worker/test_lost_leases.py::test_a_worker_that_only_itself_is_cut_off_from_the_store_is_refused_when_it_comes_back",
        ),
    ),
    Mutant(
        "report-before-the-kill",
        "A job whose lease could not be confirmed is given back after its runner is dead, not before.",
        "worker/runs.py",
        '            held.runner.kill("lease lost")\n',
        '            held.runner.kill("lease lost")\n'
        "            if ending is not None:\n"
        "                self._end(held, ending)\n",
        (
            "unit/worker/test_leases_that_end.py::test_a_job_is_given_back_after_its_runner_is_dead_and_not_when_it_was_told_to_die",
        ),
    ),
    Mutant(
        "heartbeats-of-the-lost",
        "No heartbeat beside a report: its refusal would be evidence of a zombie that never was.",
        "worker/leases.py",
        "            if not (held.lost or held.reporting)\n",
        "            if not held.lost\n",
        ("unit/worker/test_in_flight.py::test_no_heartbeat_beside_a_report_but_again_once_that_has_failed",),
    ),
    Mutant(
        "report-beside-a-heartbeat",
        "A report waits for the heartbeat that is on its way.",
        "worker/reports.py",
        "fresh = [ended for ended in self._waiting if not ended.held.beating]",
        "fresh = list(self._waiting)",
        ("unit/worker/test_in_flight.py::test_a_report_waits_for_the_heartbeat_that_is_on_its_way",),
    ),
    Mutant(
        "report-forgotten-when-the-store-is-away",
        "A report is kept until the store has answered it.",
        "worker/reports.py",
        "            self._put_back(self._asked)\n",
        "            self._asked = []\n",
        ("unit/worker/test_kept_reports.py::test_a_report_that_met_a_store_that_is_away_is_told_again",),
    ),
    Mutant(
        "neighbours-of-a-bad-report",
        "A report that the store does not take keeps no neighbour from being stored.",
        "worker/reports.py",
        "            return _one_by_one(store, reports)",
        "            raise",
        ("worker/test_unrecordable.py::test_files_that_cannot_be_recorded_cost_only_their_own_attempt",),
    ),
    Mutant(
        "report-replaced-after-any-error",
        "A report is replaced only if its content is the cause of the error.",
        "domain/errors.py",
        "    return isinstance(error, InvalidInput) and not isinstance(error, Conflict)\n",
        "    return not is_away(error)\n",
        (
            "simulation/test_histories.py::test_what_was_found_once_stays_fixed[161]",
            "remote/test_statuses.py::test_half_of_all_reports_answered_by_the_proxy_leave_every_job_succeeded[500]",
        ),
    ),
    Mutant(
        "progress-that-costs-a-lease",
        "Progress that cannot be stored costs nobody a lease.",
        "worker/heartbeats.py",
        "        return _Renewed(store.heartbeat(without), is_progress_sent=proves_bad_content(error))",
        "        raise",
        ("unit/worker/test_review.py::test_progress_that_cannot_be_stored_costs_nobody_a_lease[None]",),
    ),
    Mutant(
        "drain-that-keeps-what-is-queued",
        "What no runner has started is given back at once when the worker is told to stop.",
        "worker/draining.py",
        "        self._runs.give_back_queued()\n",
        "",
        (
            "unit/worker/test_ways_out.py::test_what_no_runner_has_started_is_given_back_at_once_when_the_worker_is_to_stop",
        ),
    ),
    Mutant(
        "drain-that-charges",
        "A deploy charges nothing: what is killed at the end of the grace is released.",
        "worker/draining.py",
        '            self._runs.release_started("the worker stopped before it was done")\n',
        "",
        ("unit/worker/test_ways_out.py::test_a_job_that_fails_because_the_worker_ends_it_is_released_and_not_charged",),
    ),
    Mutant(
        "drain-before-the-reports",
        "A worker ends after every outcome and release is reported.",
        "worker/draining.py",
        "        if len(self._runs.book) == 0 and undelivered == 0:\n",
        "        if all(held.reported for held in self._runs.book):\n",
        ("unit/worker/test_ways_out.py::test_a_worker_has_not_stopped_while_a_report_is_on_its_way",),
    ),
    Mutant(
        "claim-in-flight-kept",
        "A claim that was under way at the stop signal is given back.",
        "worker/runs.py",
        "            self.hand.add(held)\n"
        "        if self.draining:\n"
        '            self._empty_hand("the worker is stopping")\n',
        "            self.hand.add(held)\n",
        ("worker/test_rolling_restart.py::test_claim_in_flight_at_the_stop_signal_is_given_back",),
    ),
    Mutant(
        "innocent-neighbours-charged",
        "When a runner is killed for one job, the others in it are released without charge.",
        "worker/runs.py",
        "        elif runner.killed is not None:\n",
        "        elif runner.killed is not None and not runner.shared:\n",
        (
            "worker/test_killed_runner.py::test_when_a_shared_runner_is_killed_for_one_jobs_time_limit_the_others_are_released_without_charge",
        ),
    ),
    Mutant(
        "unstarted-jobs-charged",
        "Only a started job is charged with the death of its runner.",
        "worker/runs.py",
        "            if started:\n                self._lost_runner(held, runner, exit)\n",
        "            if started or not held.reported:\n                self._lost_runner(held, runner, exit)\n",
        (
            "unit/worker/test_ways_out.py::test_the_death_of_a_runner_is_charged_to_what_it_had_started_and_to_nothing_else",
        ),
    ),
    Mutant(
        "no-time-limit",
        "A job that runs longer than its time limit is stopped.",
        "worker/runs.py",
        "            held.limit_at = now + held.job.timeout_seconds\n",
        "            held.limit_at = now + 1000 * held.job.timeout_seconds\n",
        (
            "worker/test_time_limits.py::test_what_stops_when_it_is_told_has_failed_and_what_finishes_in_the_grace_has_succeeded[sqlite]",
        ),
    ),
    Mutant(
        "no-kill-after-the-grace",
        "What does not stop within the grace is killed.",
        "worker/runs.py",
        '            self._kill(held, "did not stop")\n',
        "            pass\n",
        (
            "worker/test_time_limits.py::test_what_ignores_term_and_hides_a_daemon_is_gone_with_it_within_the_limit_and_the_grace[sqlite]",
        ),
    ),
    Mutant(
        "lost-claims-not-recovered",
        "Claims whose answer was lost are given back, without charge.",
        "periodic/duties.py",
        "        trying(Duty.GIVE_BACK, lambda: self._give_back(store))\n",
        "",
        ("unit/worker/test_lost_claims.py::test_a_round_of_duties_gives_back_what_a_lost_answer_brought",),
    ),
    Mutant(
        "last-chance-queued-behind-another",
        "A job on its last chance meets its fate alone.",
        "worker/leases.py",
        "return job.crashes == 0 and job.source is None and not last_chance",
        "return job.source is None",
        ("unit/worker/test_leases.py::test_only_an_innocent_job_with_nothing_to_lose_may_be_queued_behind_another",),
    ),
    Mutant(
        "strays-not-cleared",
        "What a dead runner had started falls to the supervisor, and goes the same way.",
        "worker/supervisor.py",
        "        for pid in kill_strays(os.getpid(), known):\n",
        "        for pid in []:\n",
        ("worker/test_draining.py::test_orphans_that_outlive_their_runner_are_ended_and_waited_for_by_the_supervisor",),
    ),
    Mutant(
        "rolled-back-completion-counts",
        "A completion whose transaction was rolled back is a failure of the attempt.",
        "worker/reports.py",
        "        if found.state is State.RUNNING and found.attempt == job.attempt:\n            return None\n",
        "",
        ("worker/test_complete_in.py::test_rollback_of_the_users_transaction_is_a_failure_of_the_attempt",),
    ),
    Mutant(
        "unstarted-job-never-noticed",
        "A runner that holds a job and does not start it is killed.",
        "worker/starts.py",
        "            self._kill(runner, head, [head.lease_id])",
        "            pass",
        ("unit/worker/test_starts.py::test_unstarted_job_kills_its_runner_after_the_bound",),
    ),
    Mutant(
        "unstarted-job-never-charged",
        "A job that hangs every runner is charged with a crash, and ends.",
        "worker/starts.py",
        "                held.ending = crashed",
        "                pass",
        ("unit/worker/test_starts.py::test_head_of_an_idle_runner_crashes_and_the_jobs_behind_it_are_not_charged",),
    ),
    Mutant(
        "blocked-runner-killed",
        "A runner whose reader answers is not killed, however long its jobs block it.",
        "worker/starts.py",
        "            head.silent = 0.0\n            runner.ping()",
        "            runner.ping()\n            runner.is_pinged = True",
        (
            "unit/worker/test_starts.py"
            "::test_running_job_that_blocks_a_runner_whose_reader_answers_is_reported_and_left_alone",
        ),
    ),
    Mutant(
        "suspended-supervisor-kills-runners",
        "A pause of the whole machine is no fault of a runner.",
        "worker/starts.py",
        "min(now - self._checked_at, 2 * CHECK_EVERY_SECONDS)",
        "now - self._checked_at",
        ("unit/worker/test_starts.py::test_pause_of_the_supervisor_does_not_count_as_waiting",),
    ),
    Mutant(
        "over-limit-not-listed",
        "A job whose lease is renewed past its time limit is stuck.",
        "domain/stuck.py",
        "return _without_progress(facts, now) or _long(facts, usual, now)",
        "return _long(facts, usual, now)",
        ("contract/test_stuck.py::test_job_whose_lease_is_renewed_past_its_time_limit_is_stuck[sqlite]",),
    ),
    Mutant(
        "bad-text-blocks-a-queue",
        "A payload that is not UTF-8 fails its own job, and hides no other (SQLite).",
        "stores/sqlite.py",
        "            self.cursor.connection.text_factory = _READ_ANY_TEXT\n",
        "",
        ("worker/test_poison_payloads.py::test_payload_that_is_not_utf8_fails_only_its_own_job",),
    ),
)
