"""`sooner parse`: documents to Markdown, drafted by text layer or OCR, verified by a model if one
is named, resumable."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from . import options
from . import parse_options as asked
from .display import Display
from .from_settings import from_settings

if TYPE_CHECKING:
    from ..tasks.parse import ParseJob

BAD, INTERRUPTED = 2, 130


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="parse")(parse)


@from_settings
def parse(
    *, wanted: asked.ParseOptions, sample: asked.Sample = False, quiet: options.Quiet = False
) -> None:
    """Parse documents into Markdown and regions, page by page, as the model alone would.

    Without --model the result is the draft: a PDF's own text, or OCR's. With it the drafter reads
    the next page while the model confirms this one. Finished pages are kept
    whatever happens, and the same command goes on behind them. A page that fails does not stop
    the others; the exit code tells.
    """
    from ..tasks.parse.drafters import processes_of
    from .parse_display import PagesDisplay

    if wanted.debug:
        options.log_decisions()
    display, output = Display(quiet), wanted.output
    wanted = replace(
        wanted,
        inputs=asked.inputs_of(wanted.inputs, sample),
        model=asked.model_of(wanted.model, sample),
    )
    shown = PagesDisplay(display, output if sample else None)
    job = wanted.job(shown.page)
    try:
        with shown:
            job.run(lambda: wanted.load(display, processes_of(job.drafter)))
    except KeyboardInterrupt:
        display.error(f"interrupted: {shown.counts(job.counts)}; the same command goes on there")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        _close(job)
    for line in shown.summary(job.counts):
        display.line(line, "bold")
    if job.counts.failed:
        raise typer.Exit(BAD)


def _close(job: ParseJob) -> None:
    """End the drafter's process, if it has one."""
    close = getattr(job.drafter, "close", None)
    if close is not None:
        close()
