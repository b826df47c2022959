"""What Holdfast costs. `make bench` runs all of it; `python -m benchmarks NAME` one part.

Machines are shared and noisy, so every figure that matters is a ratio of two things measured in turn in one run.
"""
