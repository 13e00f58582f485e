"""One modality's queries against one modality's keys, both permuted inside (algorithm 7)."""
