"""Benchmarks, evaluations, trained miniatures, theory and data sets for `sooner`."""
