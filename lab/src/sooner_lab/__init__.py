"""What proves sooner: benchmarks, evaluations, trained miniatures, theory, data sets."""
