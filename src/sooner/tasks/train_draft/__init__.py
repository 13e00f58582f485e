"""Training a draft head: `recording` lets the target answer and keeps its states, `training` fits
the head to them as `settings` say."""
