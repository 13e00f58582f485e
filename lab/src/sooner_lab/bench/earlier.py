"""Which run measured the parts of a result that was added to."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any


def earlier_runs(before: Mapping[str, Any], kept: Collection[str]) -> list[dict[str, Any]]:
    """The runs behind what is kept of a result, the last first.

    Args:
        before: the result that is added to; its own `kept` tells of runs before it.
        kept: names of the parts that stay.

    Returns:
        For each run that some of them are of: `parts`, `provenance`, and `settings` if the bench
        writes them.
    """
    older = [
        {**run, "parts": [part for part in run["parts"] if part in kept]}
        for run in before.get("kept", [])
    ]
    told = {part for run in older for part in run["parts"]}
    own = {name: before[name] for name in ("settings", "provenance") if name in before}
    runs = [{"parts": [part for part in kept if part not in told], **own}, *older]
    return [run for run in runs if run["parts"]]
