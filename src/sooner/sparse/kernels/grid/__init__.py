"""Evenly spaced lines as dense blocks of classes (MMInference, algorithm 5)."""
