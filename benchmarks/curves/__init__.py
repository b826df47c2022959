"""How figures change with what there is more of. `python -m benchmarks curves [name …] [--scale S]`.

Each curve is a module: it prints a table, keeps its figures as JSON in `.cache/bench/curves/` and draws what it found
into `docs/images/curves/`. Ratios are taken within one run; what is compared takes turns.
"""
