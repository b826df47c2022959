"""For tests of code that enqueues: `with fresh_store(app) as jobs:`, or with pytest the fixture `holdfast_jobs`."""

from holdfast.tasks.testing import Jobs, fresh_store

__all__ = ["Jobs", "fresh_store"]
