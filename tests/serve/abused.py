"""A control plane in a process of its own, with low limits: `python -m tests.serve.abused DATABASE_URL`."""

import sys

from holdfast.serve.options import Limits, ServeSettings
from holdfast.serve.running import ControlPlane
from tests.servers.waiting import DEADLINE_SECONDS

LIMITS = Limits(
    body_bytes=1024 * 1024,
    single_body_bytes=256 * 1024,
    body_seconds=DEADLINE_SECONDS,
    head_seconds=DEADLINE_SECONDS,
    connections=60,
    failures_per_second=0,
)

if __name__ == "__main__":
    control = ControlPlane(ServeSettings(database_url=sys.argv[1], port=0, duties=False, limits=LIMITS))
    print(control.url, flush=True)
    sys.exit(control.run())
