"""Holdfast: a durable job engine for Python."""
