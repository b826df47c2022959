"""`python -m examples.price_watch`"""

from __future__ import annotations

import signal
import sys

from examples.price_watch.watch import main

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the workers are stopped on the way out
try:
    sys.exit(main())
except KeyboardInterrupt:
    sys.exit(130)
