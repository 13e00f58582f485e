"""Who is told how a training goes: a line, a file, the caller."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .progress import Line

EVERY = 20
"""Steps between two lines of the file."""


class Log:
    """Passes entries on.

    Args:
        folder: where `log.jsonl` is.
        shown: whether a progress line is shown.
        on_step: the caller.
    """

    def __init__(
        self, folder: Path, shown: bool, on_step: Callable[[dict[str, Any]], None] | None
    ) -> None:
        self.folder, self.shown, self.on_step = folder, shown, on_step

    def tell(self, entry: dict[str, Any], line: Line) -> None:
        """One step."""
        chain = entry.get("check", {}).get("chain")
        held = {} if chain is None else {"first": chain[0]}
        line.show({"stage": 0, "kind": "head", **entry, **held})
        if self.on_step is not None:
            self.on_step(entry)
        if entry["step"] % EVERY == 0 or "check" in entry:
            with (self.folder / "log.jsonl").open("a") as file:
                file.write(json.dumps(entry) + "\n")
