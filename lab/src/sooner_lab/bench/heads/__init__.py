"""`sooner bench heads`: draft heads that learn from what a real model answers to real prompts."""
