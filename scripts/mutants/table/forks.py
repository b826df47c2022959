"""Forks: a child has its own connections, locks and threads, and its parent keeps its own."""

from __future__ import annotations

from scripts.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "postgres-sessions-inherited",
        "A forked child opens its own sessions, and nothing of it reaches those of its parent.",
        "stores/postgres.py",
        "        after_fork(self._after_fork)\n",
        "",
        ("forks/test_clients.py::test_postgres_session_survives_calls_and_exit_of_forked_child",),
    ),
    Mutant(
        "http-connections-inherited",
        "A forked child opens its own connections to the control plane.",
        "remote/line.py",
        "        after_fork(self._after_fork)\n",
        "",
        ("forks/test_transports.py::test_http_connection_of_parent_is_not_used_by_forked_child",),
    ),
    Mutant(
        "sqlite-connections-inherited",
        "The parent closes its connections to an SQLite file before it forks, so that the child gets its own locks.",
        "stores/sqlite.py",
        "            before_fork(self._before_fork)\n",
        "",
        ("forks/test_clients.py::test_forked_child_holds_its_own_locks_on_sqlite_file",),
    ),
    Mutant(
        "sqlite-file-in-use-opened-by-child",
        "A child that was forked while its parent used an SQLite file does not open it.",
        "stores/sqlite.py",
        "        if is_open_here(identify(self._file)):",
        "        if False:",
        ("forks/test_transports.py::test_child_that_is_forked_inside_sqlite_transaction_is_refused",),
    ),
    Mutant(
        "fork-during-calls",
        "A fork waits while another thread is where no fork may happen.",
        "forks.py",
        "            self._changed.wait_for(lambda: all(user == thread for user in self._users), MAX_WAIT_SECONDS)",
        "            pass",
        ("unit/test_forks.py::test_fork_waits_for_end_of_postponed_block",),
    ),
    Mutant(
        "lock-held-in-child",
        "A lock that another thread holds at a fork is free in the child.",
        "forks.py",
        "            lock._at_fork_reinit()",
        "            pass",
        (
            "unit/test_forks.py::test_lock_of_another_thread_is_free_in_child",
            "forks/test_transports.py::test_child_that_is_forked_while_another_thread_makes_ids_makes_ids",
        ),
    ),
    Mutant(
        "callers-transaction-used-in-child",
        "A connection that a caller passed in before a fork is refused in the child.",
        "stores/database.py",
        "        self._inherited.update(self._known)",
        "        pass",
        ("forks/test_clients.py::test_connection_with_open_transaction_is_refused_in_forked_child[sqlite]",),
    ),
    Mutant(
        "callers-transaction-ended-by-child",
        "A child that leaves the block of a caller's transaction does not end that of its parent.",
        "stores/database.py",
        "        cut_off(_descriptor(connection) for connection in list(self._known))\n",
        "",
        ("forks/test_clients.py::test_transaction_of_parent_survives_child_that_leaves_its_block[postgres]",),
    ),
    Mutant(
        "watchdog-not-started-in-child",
        "A forked child starts its own watchdog.",
        "stores/watchdog.py",
        "        self._deadlines = {}\n        self._thread = None\n",
        "        self._deadlines = {}\n",
        ("forks/test_transports.py::test_forked_child_starts_its_own_watchdog_at_its_first_connection",),
    ),
    Mutant(
        "notifier-locked-in-child",
        "A child that is forked while another thread notifies sends its own notifications.",
        "transports/pg_notify.py",
        "        leak(self._finish)\n        self._changed = threading.Condition()\n",
        "        leak(self._finish)\n",
        ("forks/test_transports.py::test_child_that_is_forked_during_notification_sends_its_own",),
    ),
    Mutant(
        "parents-messages-published-by-child",
        "A forked child publishes no pending messages of its parent.",
        "transports/redis_streams/publisher.py",
        "        self._offers.clear()\n        self._acknowledged.clear()\n        self._sending",
        "        self._sending",
        ("forks/test_transports.py::test_forked_child_does_not_publish_pending_messages_of_its_parent",),
    ),
    Mutant(
        "fork-in-c-unnoticed",
        "A child that a server forked in C uses no connection of its parent.",
        "forks.py",
        "    if getpid() != _process:\n        with",
        "    if False:\n        with",
        ("forks/test_clients.py::test_fork_in_c_is_noticed_at_first_call",),
    ),
)
