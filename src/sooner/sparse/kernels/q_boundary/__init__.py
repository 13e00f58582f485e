"""One modality's queries against all keys, permuted inside the kernel (algorithm 6)."""
