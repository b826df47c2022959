"""How full a store's pool of connections is."""

from __future__ import annotations

from sqlalchemy.pool import QueuePool

from holdfast.stores.database import Database


def pool_use(store: object) -> tuple[int, int] | None:
    """How many it keeps, and how many are in use; these may be more for a while. None for a store that has no pool,
    such as one over HTTP, and for none."""
    database = getattr(store, "database", None)  # also that of a store within, where one is wrapped
    if not isinstance(database, Database):
        return None
    pool = database.engine.pool
    return (pool.size(), pool.checkedout() - database.kept()) if isinstance(pool, QueuePool) else None
