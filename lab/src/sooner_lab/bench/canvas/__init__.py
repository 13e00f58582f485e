"""`sooner bench canvas`: coupled Jacobi decoding on pictures whose law is known."""
