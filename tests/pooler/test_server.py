"""The suite's own pgbouncer: it is not root, and never outlives us."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from holdfast.throwaway.postgres import PostgresEndpoint
from tests.servers.pgbouncer import PgbouncerEndpoint
from tests.servers.waiting import gone, wait_until

REPOSITORY = Path(__file__).parents[2]
OWNER = """
import signal, sys
from tests.servers.pgbouncer import PgbouncerServer
server = PgbouncerServer(sys.argv[1]).start()
print(server.pid, flush=True)
signal.pause()
"""


@pytest.mark.usefixtures("pgbouncer")
def test_it_dies_with_its_owner_and_is_not_root(postgres_server: PostgresEndpoint) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, postgres_server.url()], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        server = psutil.Process(int(owner.stdout.readline()))
        assert server.name() == "pgbouncer"
        assert server.uids().real != 0
        os.kill(owner.pid, signal.SIGKILL)
        wait_until(lambda: gone(server.pid), what="it is gone")


def test_it_is_in_transaction_mode(pgbouncer: PgbouncerEndpoint) -> None:
    settings = {row[0]: row[1] for row in pgbouncer.admin("SHOW CONFIG")}
    assert settings["pool_mode"] == "transaction"
