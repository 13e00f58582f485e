"""`sooner caption`: text for videos, streamed, recorded, resumable."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import typer

from ..checks import option
from ..interrupts import unbroken
from ..tasks.settings import CaptionSettings
from . import BAD, INTERRUPTED, options
from .display import Display, Line, Tally, comparison, figures
from .from_settings import from_settings


@dataclass(frozen=True, kw_only=True)
class CaptionJob(options.Videos):
    """What is captioned, how and by which models.

    Attributes:
        output: append one JSON line a video.
        overwrite: redo what the output already has.
    """

    settings: CaptionSettings = field(default_factory=CaptionSettings)
    output: Path | None = option(None, metavar="FILE", names=("-o", "--output"))
    overwrite: bool = False
    models: options.Models = field(default_factory=options.Models)


@from_settings
def caption(*, request: CaptionJob, display: Display) -> None:
    """Caption videos, faster, word for word the same (unless --prefill says otherwise).

    Accepted draft tokens are tinted. With -o, a rerun skips videos whose content and settings
    are on record. An error in one video does not stop the others.
    """
    job = _Job(request, display)
    try:
        job.run(request.paths(request.models.model))
    except KeyboardInterrupt:
        where = f"; they are in '{request.output}'" if request.output and job.tally.done else ""
        display.error(f"interrupted: {job.tally}{where}")
        raise typer.Exit(INTERRUPTED) from None
    if job.tally.failed:
        raise typer.Exit(BAD)


class _Job:
    """All files of one call: models are loaded when the first file needs them."""

    def __init__(self, request: CaptionJob, display: Display) -> None:
        from ..tasks.identity import Records

        self.settings, self.models = request.settings, request.models
        self.display = display
        self.tally = Tally(display, "videos captioned")
        self.records: Records | None = None
        if request.output is not None:
            self.records = Records(request.output, request.overwrite)

    @cached_property
    def pair(self) -> Any:
        """The models, loaded on first use."""
        with self.display.loading():
            is_parallel = self.settings.method in (None, "parallel")
            placement = self.settings.placement if is_parallel else None
            return self.models.load(placement, method=self.settings.method)

    def run(self, inputs: list[Path]) -> None:
        """Captions every video of every path; errors are reported and counted.

        Raises:
            SoonerError: the models can't be loaded; no other file would fare better.
        """
        from ..tasks.identity import find

        videos: dict[Path, None] = {}
        for path in inputs:
            with self.tally.attempt(f"'{path}'"):
                videos.update(dict.fromkeys(find([path])))
        self.tally.total = len(videos) + self.tally.failed
        for number, path in enumerate(videos, start=1):
            position = f"[{number}/{len(videos)}] " if len(videos) > 1 else ""
            self.display.line(f"{position}{path}", "bold")
            is_needed = False
            with self.tally.attempt(f"'{path}'"):
                is_needed = self._is_needed(path)
            if is_needed:
                _ = self.pair  # an error here is no file's
                with self.tally.attempt(f"'{path}'"):
                    self._caption(path)
        if self.tally.total > 1:
            self.display.line(str(self.tally), "bold")

    def _is_needed(self, path: Path) -> bool:
        """Returns whether a file is a video, and the output lacks this content with these settings;
        checked before models are loaded."""
        from ..tasks import identity
        from ..tasks.video import probe

        if self.records is not None:
            names = identity.model_names(self.models.model, self.models.draft)
            hashed = identity.settings_hash(self.settings, *names, dtype=self.models.dtype)
            if (record := self.records.done(identity.sha256(path), hashed)) is not None:
                self.tally.skip(f", as '{record.get('file')}'")
                return False
        probe(path)
        return True

    def _caption(self, path: Path) -> None:
        from ..tasks.caption import CaptionCallbacks
        from ..tasks.caption import caption as make

        display = self.display
        callbacks = CaptionCallbacks(
            display.decoded, display.stage, display.text, display.generated,
            lambda estimate: display.lines([(figures(estimate), "dim")]), display.prefilled,
        )  # fmt: skip
        record = make(path, self.pair, self.settings, callbacks)
        display.end_text()
        with unbroken():
            if self.records is not None:
                self.records.add(record)
            self.tally.done += 1
        display.notes(record["notes"])
        display.lines(summary(record))


def summary(record: dict[str, Any]) -> Iterator[Line]:
    """Yields what a record says about speed and exactness."""
    yield figures(record, "tokens", "tokens_per_second", "method", "mode", "acceptance"), ""
    yield figures(record, "prefill"), "yellow" if record["mode"] == "approximate" else ""
    if "plain" in record:
        yield comparison(record)
    yield figures(record, "frames", "seconds"), "dim"
    if record["finish"] == "length":
        yield f"cut after {record['tokens']} tokens; see --max-new-tokens", "yellow"
