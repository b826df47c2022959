"""Two workers, 200 jobs, and the audit log as witness: no job was held twice."""

from __future__ import annotations

from stage import begin, table, verify
from tasks import short

JOBS = 200

LEFT = "SELECT 1 FROM holdfast_jobs WHERE queue = :queue AND state <> 'succeeded' LIMIT 1"

SHARES = """
    SELECT a.worker, count(*)
    FROM holdfast_jobs j JOIN holdfast_attempts a ON a.job_id = j.id
    WHERE j.queue = :queue AND a.outcome = 'succeeded'
    GROUP BY a.worker ORDER BY a.worker"""

# One row for each attempt that began before an earlier one of the same job had ended. There must be none.
HELD_TWICE = """
    SELECT one.job_id, one.worker, other.worker
    FROM holdfast_jobs j
    JOIN holdfast_attempts one ON one.job_id = j.id
    JOIN holdfast_attempts other ON other.job_id = j.id AND other.attempt > one.attempt
    WHERE j.queue = :queue AND (one.finished_at IS NULL OR other.started_at < one.finished_at)"""


def main() -> None:
    stage = begin("two-workers")
    with stage.workers("--processes", "1", "--slots", "4"):
        print("Workers ann and bob wait for jobs.")
        short.using(queue=stage.queue).enqueue_many([(number,) for number in range(JOBS)])
        print(f"{JOBS} jobs are stored, in one call; both workers go for them.")
        stage.wait(lambda: not stage.sql(LEFT), "all jobs have succeeded")
    print("All have succeeded. Who ran how many, from the audit log:")
    table(("worker", "jobs"), stage.sql(SHARES))
    print(f"Attempts that began before an earlier one of the same job had ended: {len(stage.sql(HELD_TWICE))}")
    verify(stage)


if __name__ == "__main__":
    main()
