"""What goes to a runner is one line, whatever is in it: a worker over HTTP has ids and tokens from elsewhere."""

from typing import Any

import pytest

from holdfast.domain.job import Claimed
from holdfast.runners.frames import Decoder, run

HOSTILE = '","task":"other","x":"\n\\ü\u2028'


@pytest.mark.parametrize("field", ["job_id", "task", "queue", "lease_token", "traceparent"])
def test_no_field_of_a_job_says_anything_but_itself(field: str) -> None:
    fields: dict[str, Any] = {
        "job_id": "1",
        "task": "add",
        "queue": "sums",
        "lease_token": "secret",
        "traceparent": "00-a-b-01",
    }
    fields[field] = HOSTILE
    job = Claimed(
        **fields,
        task_version=None,
        source=None,
        payload_json='{"a":1}',
        attempt=2,
        failures=0,
        crashes=0,
        max_attempts=3,
        max_crashes=3,
        timeout_seconds=None,
        lease_seconds=60.0,
    )
    [frame] = Decoder().feed(run([job], None))
    [told] = frame["jobs"]
    assert told["id"] == f"{fields['job_id']}.2.{fields['lease_token'][:16]}"
    named = {"job_id": "job_id", "task": "task", "queue": "queue", "lease_token": "token", "traceparent": "traceparent"}
    assert {name: told[short] for name, short in named.items()} == fields
