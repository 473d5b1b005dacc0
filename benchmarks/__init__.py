"""Undertow against its peers: whole steps, both sides in one run, as ratios. `python -m benchmarks --help`."""
