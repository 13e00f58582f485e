"""Jacobi decoding: drafts from the target's own last iteration."""
