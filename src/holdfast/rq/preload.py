"""Everything that a job needs, imported: with `rq worker -c holdfast.rq.preload` whatever RQ forks has it already.

It makes no connections, starts no threads, and contains no settings of RQ.
"""

import holdfast.rq.running  # noqa: F401
