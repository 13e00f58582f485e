"""Gemma 4's assistants: small drafters without keys of their own, which read the target's."""
