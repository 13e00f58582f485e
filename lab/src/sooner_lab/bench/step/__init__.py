"""Proof that a decoding step never waits, without a GPU: guards, counts, and their command."""
