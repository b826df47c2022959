"""What a supervisor needs does not grow with what it has done."""

import psutil
import pytest

from holdfast.domain.logs import LogLine
from holdfast.worker.stores import CONNECTIONS
from tests.servers.waiting import DEADLINE_SECONDS, wait_until
from tests.worker.site import Site, WorkerProcess

MIB = 1024 * 1024
MOST_GROWTH = 20 * MIB
WARM_UP = 2_000
BATCH = 2_000
MOST_CONNECTIONS = 2 * CONNECTIONS + 1


class Figures:
    """What the supervisor uses now."""

    def __init__(self, worker: WorkerProcess) -> None:
        process = psutil.Process(worker.pid)
        with process.oneshot():
            self.memory = process.memory_info().rss
            files = [file.path for file in process.open_files() if "jobs.db" in file.path]  # SQLite's, with their logs
            sockets = len(process.net_connections())
            self.connections = sockets + sum(path.endswith("jobs.db") for path in files)
            self.descriptors = process.num_fds() - sockets - len(files)
            self.threads = process.num_threads()


def run_no_ops(site: Site, worker: WorkerProcess, count: int, before: int) -> None:
    for _ in range(count // BATCH):
        site.enqueue_many("nothing", BATCH)
        before += BATCH
        site.wait_for_counts(succeeded=before)
        assert worker.running


def soak(site: Site, count: int) -> None:
    site.tasks("@app.task\ndef nothing(): pass")
    worker = site.worker("--processes", "2", log_level="info")
    run_no_ops(site, worker, WARM_UP, 0)
    first = Figures(worker)
    run_no_ops(site, worker, count - WARM_UP, WARM_UP)
    last = Figures(worker)
    grown = last.memory - first.memory
    print(f"after {count} jobs: {last.memory / MIB:.1f} MiB, {grown / MIB:+.1f} MiB since job {WARM_UP}")
    assert grown < MOST_GROWTH
    # A look is no instant: one that is just being opened or closed is missed by one count and seen by the other.
    wait_until(lambda: Figures(worker).descriptors <= first.descriptors, what="no more descriptors than before")
    # Opened when first needed, so one may be added late: two stores of three, and the one for wake-ups.
    assert last.connections <= MOST_CONNECTIONS
    wait_until(lambda: Figures(worker).threads <= first.threads, what="no more threads than before")


def test_10000_no_op_jobs_cost_the_supervisor_no_memory_descriptors_or_threads(postgres_site: Site) -> None:
    soak(postgres_site, 10_000)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_200000_no_op_jobs_cost_the_supervisor_no_memory_descriptors_or_threads(site: Site) -> None:
    soak(site, 200_000)


def kept_lines(site: Site, job: str) -> list[LogLine]:
    lines: list[LogLine] = []
    while page := site.store.logs(job, after=(lines[-1].attempt, lines[-1].number) if lines else None):
        lines += page
    return lines


def print_megabytes(site: Site, megabytes: int) -> None:
    site.tasks(f"""
        app.command("shout", ["sh", "-c", "yes {"x" * 99} | head -c {megabytes}000000; echo the end >&2"])
    """)
    worker = site.worker("--processes", "1", log_level="info")
    worker.wait_for_log(", all queues, ")
    first = Figures(worker).memory
    most = [first]
    job = site.enqueue("shout")

    def done() -> bool:
        most.append(Figures(worker).memory)
        return site.job(job).finished_at is not None

    site.wait(done, "the command has ended", timeout=3 * DEADLINE_SECONDS)
    print(f"{megabytes} MB printed: {max(most) / MIB:.1f} MiB at most, {(max(most) - first) / MIB:+.1f} MiB")
    assert site.event_names(job)[-1] == "succeeded"
    assert max(most) - first < MOST_GROWTH
    # Cut at a mebibyte, or ten thousand lines, with a line that says so. Lines follow the job's end by a moment.
    site.wait(lambda: any(line.fields.get("truncated") for line in kept_lines(site, job)), "the marker is stored")
    lines = kept_lines(site, job)
    assert lines[-1].message.startswith("cut here")
    assert 1_000 < len(lines) <= 10_001
    assert sum(len(line.message) for line in lines) < 1.1 * MIB


def test_command_that_prints_100_mb_costs_the_supervisor_no_memory_and_is_cut_with_a_marker(
    postgres_site: Site,
) -> None:
    print_megabytes(postgres_site, 100)


@pytest.mark.long
def test_command_that_prints_1_gb_costs_the_supervisor_no_memory_and_is_cut_with_a_marker(site: Site) -> None:
    print_megabytes(site, 1000)
