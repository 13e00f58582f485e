"""Benchmarks, evaluations, theory, data sets and the worlds of the miniatures for `sooner`."""
