"""Alembic's folder, run by `holdfast.stores.upgrade`: tables and indexes, one numbered file a step.

A step is frozen once released: it spells out what it creates and does not import `schema`, which moves on.
Triggers, functions and the view are not here; see `holdfast.stores.guards`. Nothing is ever downgraded.
"""
