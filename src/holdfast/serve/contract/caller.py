"""Who calls the worker contract: a credential with scope `worker`. `worker_id` is a label and decides nothing."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from holdfast.domain.tokens import Scope
from holdfast.serve.auth import Identity, allowed

Caller = Annotated[Identity, Depends(allowed(Scope.WORKER))]
