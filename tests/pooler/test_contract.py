"""The contract suite once more, by way of pgbouncer in transaction mode."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import SERVERS
from tests.servers.pgbouncer import PgbouncerEndpoint
from tests.servers.shared import URL_VARIABLES

REPOSITORY = Path(__file__).parents[2]
CONTRACT = REPOSITORY / "tests" / "contract"
# What a job's life is made of; the rest takes minutes.
REPRESENTATIVE = ("claim", "heartbeat", "reap")


@pytest.fixture
def servers(pgbouncer: PgbouncerEndpoint, pytestconfig: pytest.Config) -> Mapping[str, str]:
    """Variables that point another run of pytest at the servers of this one."""
    assert isinstance(pgbouncer, PgbouncerEndpoint)
    urls = pytestconfig.stash[SERVERS]
    return {URL_VARIABLES["postgres"]: urls.url("postgres"), URL_VARIABLES["pgbouncer"]: urls.url("pgbouncer")}


def run_contract(servers: Mapping[str, str], *files: Path, way: str = "--through-pgbouncer") -> int:
    """How many tests passed; none may do anything else."""
    command = [sys.executable, "-m", "pytest", way, "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, *map(str, files)],
        cwd=REPOSITORY,
        env={**os.environ, **servers},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr
    print(last)
    assert done.returncode == 0, done.stdout[-8000:]
    assert "skipped" not in last
    assert "failed" not in last
    return int(last.split(" passed")[0].split()[-1])


def test_the_life_of_a_job_through_pgbouncer(servers: Mapping[str, str]) -> None:
    assert run_contract(servers, *(CONTRACT / f"test_{name}.py" for name in REPRESENTATIVE)) >= 90


@pytest.mark.long
def test_the_whole_contract_through_pgbouncer(servers: Mapping[str, str]) -> None:
    assert run_contract(servers, CONTRACT) > 700
