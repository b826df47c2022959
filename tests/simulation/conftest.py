from collections.abc import Iterator

import pytest

from tests.simulation.history import collector_spared


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    with collector_spared():
        yield
