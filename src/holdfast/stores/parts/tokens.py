"""Who may speak to a control plane, and who was turned away."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.domain.answers import Beat, Reason, Verb
from holdfast.domain.tokens import AccessRefusal, Attempted, Issued, NewToken, Standing, Token
from holdfast.domain.views import (
    WorkerRow,
)
from holdfast.stores.database import Database
from holdfast.stores.verbs import (
    proving,
    tokens,
    worker_rows,
)
from holdfast.stores.verbs.tokens import MOST_REFUSALS


class TokenPart:
    database: Database

    def create_token(self, new: NewToken) -> Issued:
        """Its text is nowhere afterwards but in this answer."""
        return tokens.create(self.database, new)

    def rotate_token(self, name: str) -> Issued:
        return tokens.rotate(self.database, name)

    def revoke_token(self, name: str) -> Token:
        return tokens.revoke(self.database, name)

    def tokens(self) -> list[Token]:
        """The live ones first; revoked ones stay on record."""
        return tokens.tokens(self.database)

    def any_live_token(self) -> bool:
        return tokens.any_live(self.database)

    def standings(self, ids: Sequence[str]) -> dict[str, Standing]:
        return tokens.standings(self.database, ids)

    def lease_reasons(self, shown: Sequence[Beat]) -> list[Reason | None]:
        """Whether each of these leases was ever given to whoever shows it, also where it is over: None, or why not."""
        return proving.lease_reasons(self.database, shown)

    def check_lease(self, lease: Beat, verb: Verb) -> Reason | None:
        """None while this lease is held; else why it is not, which is then on record as a refused `verb`."""
        return proving.check_lease(self.database, lease, verb)

    def keep_worker_of(self, credential: str, row: WorkerRow) -> bool:
        """The row of a worker that has this credential; False when the id is another's."""
        return worker_rows.keep_worker_of(self.database, credential, row)

    def touch_tokens(self, ids: Sequence[str]) -> None:
        tokens.touch(self.database, ids)

    def create_admin_link(self, seconds: float) -> Issued:
        return tokens.create_link(self.database, seconds)

    def use_admin_link(self, code: str) -> Issued | None:
        return tokens.use_link(self.database, code)

    def record_access_refusals(self, attempts: Sequence[Attempted], most: int = MOST_REFUSALS) -> None:
        """`most` rows are kept; what is new beyond them is counted under one address for all."""
        tokens.record_refusals(self.database, attempts, most)

    def access_refusals(self, limit: int = 1000) -> list[AccessRefusal]:
        """The latest first."""
        return tokens.refusals(self.database, limit)

    def forget_access_refusals(self, keep_seconds: float) -> None:
        tokens.forget_refusals(self.database, keep_seconds)
