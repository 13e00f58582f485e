"""One modality's queries against all keys or one's own, permuted inside (algorithms 6, 7)."""
