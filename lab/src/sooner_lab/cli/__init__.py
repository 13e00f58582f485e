"""Commands that the lab adds to `sooner`, found by entry points; see `sooner.plugins`."""
