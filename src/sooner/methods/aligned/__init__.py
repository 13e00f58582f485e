"""Drafts that were made beforehand, aligned with what the target says (HSD)."""
