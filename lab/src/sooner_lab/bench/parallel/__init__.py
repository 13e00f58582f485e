"""`sooner bench parallel`: ParallelVLM's tables from real runs."""
