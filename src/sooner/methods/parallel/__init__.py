"""ParallelVLM: draft and target run at once, the draft sees only the tokens that matter."""
