"""Windows of keys and vertical lines (MInference, appendix C.3 of MMInference)."""
