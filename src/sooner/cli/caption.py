"""`sooner caption`: text for videos, streamed, recorded, resumable."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SoonerError, reason_of
from ..tasks.settings import CaptionSettings
from . import options
from .display import Display, RankGroup, heading, unbroken
from .from_settings import from_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..tasks.records import Records

BAD, INTERRUPTED = 2, 130


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="caption")(caption)


@from_settings
def caption(
    *,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="[FILE...]", help="Videos, or folders of them.")
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Caption the bundled clip.")] = False,
    settings: CaptionSettings,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Append one JSON line a video."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Redo what the output already has.")
    ] = False,
    models: options.Models,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Caption videos, faster, word for word the same (unless --prefill says otherwise).

    Accepted draft tokens are tinted. With -o, a rerun skips videos whose content and settings
    are on record. An error in one video does not stop the others.
    """
    from ..tasks.records import Records

    if debug:
        options.log_decisions()
    ranks = RankGroup(models.tp)
    records = Records(output, overwrite) if output is not None and ranks.is_rank_zero else None
    display = Display(quiet or not ranks.is_rank_zero)
    job = _Job(settings, records, display, models, debug, ranks)
    try:
        with ranks.joined(models.device):
            job.run(_inputs(files, sample, models.model))
    except KeyboardInterrupt:
        job.display.error(job.interrupted())
        raise typer.Exit(INTERRUPTED) from None
    if job.failed:
        raise typer.Exit(BAD)


def _inputs(files: list[Path] | None, sample: bool, model: str | None) -> list[Path]:
    """Returns the files given, the bundled clip, or both.

    Raises:
        SoonerError: neither; or nothing but the miniature to caption them, which is not installed.
    """
    from .. import miniatures

    small = miniatures.find("video") if sample or model is None else None
    clip = small.sample if sample and small is not None else None
    paths = [*(files or []), *([clip] if clip is not None else [])]
    if not paths:
        raise SoonerError("no video given; name a file or a folder, or use --sample")
    return paths


class _Job:
    """All files of one call: models are loaded when the first file needs them."""

    def __init__(
        self,
        settings: CaptionSettings,
        records: Records | None,
        display: Display,
        models: options.Models,
        debug: bool,
        ranks: RankGroup,
    ) -> None:
        self.settings, self.records, self.display = settings, records, display
        self.models, self.debug, self.ranks = models, debug, ranks
        self.pair: Any = None
        self.done = self.skipped = self.failed = self.total = 0

    def run(self, inputs: list[Path]) -> None:
        """Every video of every path; errors are told and counted.

        Raises:
            SoonerError: the models can't be loaded; no other file would fare better.
        """
        videos = self._videos(inputs)
        self.total = len(videos) + self.failed
        for number, path in enumerate(videos, start=1):
            heading(self.display, path, number, len(videos))
            if self.ranks.broadcast_flag(partial(self._attempt, self._is_needed, path)):
                self._load()
                if not self._attempt(self._caption, path) and self.ranks.is_tensor_parallel:
                    raise typer.Exit(BAD)  # the others may have got elsewhere: end with them
        if self.total > 1:
            self.display.line(self._counts(), "bold")

    def _attempt(self, action: Callable[[Path], bool], path: Path) -> bool:
        """Work on one file; an error is printed and counted, and the next file follows."""
        try:
            with self.display.job():
                return action(path)
        except SoonerError as error:
            self._fail(str(error))
        except BrokenPipeError:
            raise  # nobody reads any more
        except Exception as error:
            if self.debug:
                raise
            message = f"{type(error).__name__}: {reason_of(error)}"
            self._fail(f"'{path}': {message} (--debug shows where)")
        return False

    def _videos(self, paths: list[Path]) -> list[Path]:
        from ..tasks import identity as files

        videos: dict[Path, None] = {}
        for path in paths:
            try:
                videos.update(dict.fromkeys(files.find([path])))
            except SoonerError as error:
                self._fail(str(error))
        return list(videos)

    def _is_needed(self, path: Path) -> bool:
        """Returns whether a file is a video and not done yet; checked before models are loaded."""
        from ..tasks.video import probe

        if self._is_done(path):
            return False
        if self.pair is None:
            probe(path)
        return True

    def _load(self) -> None:
        if self.pair is None:
            with self.display.job():
                self.display.stage("load")
                is_parallel = self.settings.method in (None, "parallel")
                placement = self.settings.placement if is_parallel else None
                self.pair = self.models.load(self.debug, placement, method=self.settings.method)

    def _caption(self, path: Path) -> bool:
        from ..tasks.caption import CaptionCallbacks
        from ..tasks.caption import caption as make

        display = self.display
        callbacks = CaptionCallbacks(
            display.decoded, display.stage, display.text, display.generated
        )
        record = make(path, self.pair, self.settings, callbacks)
        display.end_text()
        with unbroken():
            if self.records is not None:
                self.records.add(record)
            self.done += 1
        for note in record["notes"]:
            display.line(f"  {note}", "yellow")
        display.summary(record)
        return True

    def _is_done(self, path: Path) -> bool:
        """Returns whether the output has this content with these settings already."""
        if self.records is None:
            return False
        from ..tasks import identity

        names = identity.model_names(self.models.model, self.models.draft)
        hashed = identity.settings_hash(self.settings, *names, dtype=self.models.dtype)
        record = self.records.done(identity.sha256(path), hashed)
        if record is None:
            return False
        self.skipped += 1
        self.display.line(f"  done before, as '{record.get('file')}'; --overwrite redoes it")
        return True

    def _fail(self, line: str) -> None:
        self.failed += 1
        self.display.error(line)

    def _counts(self) -> str:
        text = f"{self.done} of {self.total} videos captioned"
        text += f", {self.skipped} done before" if self.skipped else ""
        return text + (f", {self.failed} failed" if self.failed else "")

    def interrupted(self) -> str:
        where = f"; they are in '{self.records.path}'" if self.records and self.done else ""
        return f"interrupted: {self._counts()}{where}"
