"""`sooner bench prefill`: sparse prefill against dense attention and against the baselines."""
