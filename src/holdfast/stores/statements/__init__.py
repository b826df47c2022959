"""All SQL of the verbs, one operation a file.

A statement is written once, over `Words`: the few places where Postgres and SQLite differ. It is rendered once per
dialect and driver, and then executed as a plain string.
"""
