"""The verbs: each a function over a database, made of statements and decisions, one transaction a verb."""
