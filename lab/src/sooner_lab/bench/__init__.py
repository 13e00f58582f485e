"""Benchmarks behind `sooner bench`: each measures its arms in one run and writes one JSON."""
