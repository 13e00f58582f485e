"""`sooner bench imagine`: how coupled Jacobi decoding draws, and what it must equal and beat."""
