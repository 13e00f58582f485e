"""The progress line: what is trained, how far, how well."""

from __future__ import annotations

from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class Line:
    """A context manager; nothing is written when `shown` is False."""

    def __init__(self, shown: bool) -> None:
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"),
            TimeElapsedColumn(), disable=not shown,
        )  # fmt: skip
        self.task = self.bar.add_task("", total=None, said="")

    def __enter__(self) -> Line:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(self, entry: dict[str, Any]) -> None:
        hidden = ("stage", "kind", "step", "steps", "seconds", "check")
        said = " ".join(f"{key} {value:.3g}" for key, value in entry.items() if key not in hidden)
        name = f"stage {entry['stage'] + 1}: {entry['kind']}"
        self.bar.update(
            self.task, description=name, completed=entry["step"], total=entry["steps"], said=said
        )
