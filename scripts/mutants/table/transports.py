"""Messages: hints that may be lost, doubled or late; the database decides."""

from __future__ import annotations

from scripts.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "acknowledged-before-the-commit",
        "A message is acknowledged after the final state has committed.",
        "transports/redis_streams/store.py",
        "        answers = self._store.settle(reports)\n        over = [",
        "        self._acknowledge([report for report in reports if report.message_id is not None])\n"
        "        self._transport.publisher.flush(1.0)\n"
        "        answers = self._store.settle(reports)\n"
        "        over = [",
        (
            "transports/test_redis_acknowledging.py::test_while_an_outcome_is_being_committed_its_message_is_in_its_workers_hands",
        ),
    ),
    Mutant(
        "acknowledged-whatever-the-answer",
        "A report that was not taken leaves its message in somebody's hands.",
        "transports/redis_streams/store.py",
        "if report.message_id is not None and (answer.ok or answer.reason in _OVER)",
        "if report.message_id is not None",
        ("transports/test_redis_messages.py::test_a_report_acknowledges_its_own_message_and_no_other",),
    ),
    Mutant(
        "message-of-another-job-dropped",
        "A report acknowledges its own message, and no other.",
        "transports/redis_streams/scripts/drop.lua",
        "local fits = #entries == 0 or ARGV[at + 1] == ''",
        "local fits = true",
        ("transports/test_redis_messages.py::test_a_report_acknowledges_its_own_message_and_no_other",),
    ),
    Mutant(
        "message-that-was-claimed-with-forgotten",
        "The message of a claim is handed out with its job.",
        "stores/verbs/claim_named.py",
        "return [replace(job, message_id=self.messages.get(job.job_id)) for job in claimed]",
        "return claimed",
        ("transports/test_redis_messages.py::test_a_job_travels_as_its_id_and_version_and_nothing_stays[sqlite]",),
    ),
    Mutant(
        "group-not-made-again",
        "A group that is lost is made again.",
        "transports/redis_streams/scripts/take.lua",
        "      redis.pcall('XGROUP', 'CREATE', key, ARGV[2], '0')\n",
        "",
        ("transports/test_redis_messages.py::test_a_job_travels_as_its_id_and_version_and_nothing_stays[sqlite]",),
    ),
    Mutant(
        "window-without-a-bound",
        "A stream is never longer than its window.",
        "transports/redis_streams/scripts/add.lua",
        "  if added < room and not named[ARGV[at]] then",
        "  if not named[ARGV[at]] then",
        (
            "transports/test_redis_messages.py::test_a_stream_is_never_longer_than_its_window_and_is_topped_up_in_the_order_of_claims[sqlite]",
        ),
    ),
    Mutant(
        "sweep-that-offers-twice",
        "What has a message gets no second one from the sweeper.",
        "transports/redis_streams/sweeper.py",
        "return self._streams.add(queue, jobs, only_new=True) if jobs else 0",
        "return self._streams.add(queue, jobs) if jobs else 0",
        (
            "transports/test_redis_messages.py::test_a_stream_is_never_longer_than_its_window_and_is_topped_up_in_the_order_of_claims[sqlite]",
        ),
    ),
    Mutant(
        "sweep-that-offers-nothing",
        "What is due and has no message is offered by the sweeper.",
        "transports/redis_streams/sweeper.py",
        "        offers = self._store().offers(queue, self._options.window)\n",
        "        offers = self._store().offers(queue, self._options.window)[:0]\n",
        ("transports/test_redis_messages.py::test_in_the_users_own_transaction_nothing_is_published_until_the_sweep",),
    ),
    Mutant(
        "message-taken-from-its-worker",
        "A message stays with the worker that runs its job, however long.",
        "transports/redis_streams/sweeper.py",
        "            if held is not None and offer.owner == held.consumer:\n                continue\n",
        "",
        ("chaos/test_redis_takeover.py::test_a_message_stays_with_the_worker_that_runs_its_job[postgres]",),
    ),
    Mutant(
        "message-of-the-dead-not-taken-over",
        "The messages of a killed process are taken over.",
        "transports/redis_streams/sweeper.py",
        "            elif message.job_id not in unread:\n                disposal.put_back.append(message)\n",
        "            elif message.job_id not in unread:\n                continue\n",
        ("transports/test_redis_messages.py::test_messages_in_no_hands_are_found",),
    ),
    Mutant(
        "poison-read-again-and-again",
        "A message that leads nowhere goes to the dead letters.",
        "transports/redis_streams/claiming.py",
        "            if reason is not None:\n"
        "                disposal.bury.append((message, reason))\n"
        "                continue\n"
        '            offer = offers[message.job_id or ""]\n'
        "            if offer.claimable and",
        "            if reason is not None:\n"
        "                disposal.put_back.append(message)\n"
        "                continue\n"
        '            offer = offers[message.job_id or ""]\n'
        "            if offer.claimable and",
        ("transports/test_redis_messages.py::test_messages_that_lead_nowhere_become_dead_letters",),
    ),
    Mutant(
        "published-before-the-users-commit",
        "In the user's own transaction nothing is published.",
        "transports/redis_streams/store.py",
        "        if connection is None:  # else nobody knows yet whether it will be committed\n",
        "        if True:\n",
        ("transports/test_redis_messages.py::test_in_the_users_own_transaction_nothing_is_published_until_the_sweep",),
    ),
    Mutant(
        "claims-that-need-redis",
        "While Redis is away jobs are claimed by the database alone.",
        "transports/redis_streams/store.py",
        "        except (RedisAway, RedisRefused):\n            return self._claim_by_database(asked)\n",
        "        except (RedisAway, RedisRefused):\n            return ClaimedJobs()\n",
        ("transports/test_redis_away.py::test_a_job_is_enqueued_claimed_and_finished_without_redis",),
    ),
    Mutant(
        "redis-asked-at-once-again",
        "After a failure Redis is left alone for a while.",
        "transports/redis_streams/breaker.py",
        "            if self._clock() < self._not_before:\n                return False\n",
        "",
        (
            "transports/test_redis_listener.py::test_after_a_failure_redis_is_left_alone_for_longer_and_longer_and_one_tries",
        ),
    ),
    Mutant(
        "read-only-session-kept",
        "A session that takes no writes is replaced.",
        "stores/postgres_session.py",
        "    return error.sqlstate == _READ_ONLY or error.diag",
        "    return error.diag",
        ("chaos/test_switchover.py::test_session_that_became_read_only_is_replaced[verb]",),
    ),
    Mutant(
        "closed-session-used",
        "A session that the server closed while it was idle is not used.",
        "stores/postgres_session.py",
        "    return now - idle_since < MIN_IDLE_SECONDS or not _has_input(connection)\n",
        "    return True\n",
        ("transports/test_idle_disconnect.py::test_call_after_the_server_closed_the_session_works",),
    ),
    Mutant(
        "no-second-try-after-a-lost-session",
        "An enqueue whose session was closed tries again on a new one.",
        "stores/verbs/enqueueing.py",
        "    answers = _enqueue_all(database, known, ids)\n",
        '    raise SessionLost("the session ended")\n',
        ("simulation/test_histories.py::test_what_was_found_once_stays_fixed[0]",),
    ),
    Mutant(
        "rq-retries-by-itself",
        "A message of RQ that has been pushed is not pushed again.",
        "transports/rq_queues.py",
        "unknown = [offer for offer, ttl, is_refused in found if ttl == MISSING and not is_refused]",
        "unknown = list(offers)",
        ("rq/test_offering.py::test_the_sweep_offers_what_has_no_message_up_to_the_window",),
    ),
    Mutant(
        "rq-message-kept-for-good",
        "A message whose RQ worker died before the claim expires.",
        "transports/rq_queues.py",
        "if ttl == PERMANENT",
        "if False",
        ("rq/test_offering.py::test_message_of_an_rq_worker_that_died_before_the_claim_expires",),
    ),
    Mutant(
        "connections-to-a-replica-kept",
        "A connection to a Redis that has become a replica is replaced.",
        "transports/redis_replica.py",
        "    if is_replica:\n",
        "    if False:\n",
        (
            "chaos/test_redis_switchover.py::test_messages_flow_again_after_a_switchover",
            "chaos/test_redis_switchover.py::test_rq_gets_messages_again_after_a_switchover",
        ),
    ),
    Mutant(
        "replica-read-as-empty",
        "A claim by messages that a replica refuses is an error, not an empty stream.",
        "transports/redis_streams/scripts/take.lua",
        "      return answer\n",
        "",
        ("chaos/test_redis_switchover.py::test_messages_flow_again_after_a_switchover",),
    ),
)
