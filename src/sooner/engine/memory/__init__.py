"""The memory of an engine: pages of slots, prefixes that requests share, encoded pictures."""
