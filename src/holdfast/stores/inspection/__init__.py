"""Looks at a database for `holdfast doctor`: facts only, nothing is changed and nothing is judged here."""
