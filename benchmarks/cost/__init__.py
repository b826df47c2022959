"""`python -m benchmarks cost`: CPU time per job, beside that of another revision."""
