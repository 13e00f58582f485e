"""Diagonals of blocks and vertical lines (MInference, appendix C.3 of MMInference)."""
