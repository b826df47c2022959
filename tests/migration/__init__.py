"""Databases are brought to this Holdfast's schema: completely, once, and through every interruption."""
