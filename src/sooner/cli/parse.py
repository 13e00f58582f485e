"""`sooner parse`: documents to Markdown, drafted by text layer or OCR, verified by a model if one
is named, resumable."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SoonerError
from . import BAD, INTERRUPTED
from .display import Display
from .from_settings import from_settings
from .parse_options import ParseOptions

if TYPE_CHECKING:
    from ..ray import RayJob
    from ..tasks.parse import ParseJob


@from_settings
def parse(
    *,
    request: ParseOptions,
    sample: Annotated[
        bool, typer.Option("--sample", help="The bundled page, whose Markdown is printed.")
    ] = False,
    display: Display,
) -> None:
    """Parse documents into Markdown and regions, page by page, as the model alone would.

    Without --model the result is the draft: a PDF's own text, or OCR's. With it the drafter reads
    the next page while the model confirms this one. Finished pages are kept
    whatever happens, and the same command goes on behind them. A page that fails does not stop
    the others; the exit code tells.
    """
    from ..interrupts import ended_as_interrupted
    from .parse_display import PagesDisplay

    if sample:  # which is for the bundled miniature
        from .. import miniatures
        from ..tasks.parse.identity import DEMO

        page = miniatures.find("document").sample
        inputs = [*(request.inputs or []), *([str(page)] if page is not None else [])]
        request = replace(request, inputs=inputs, model=request.model or DEMO)
    if not request.inputs:
        raise SoonerError("nothing to parse; name a file or a folder, or use --sample")
    pages_display = PagesDisplay(display)
    if not request.ray:
        job: ParseJob | RayJob = request.job(pages_display.page)
    else:
        job = request.ray_job(pages_display.page)
    pages_display.texts = job.store if sample else None
    try:
        with display.job(), ended_as_interrupted():  # no page is blamed for the end
            request.run(job, display)
    except KeyboardInterrupt:
        display.error(
            f"interrupted: {pages_display.counts(job.counts)}; the same command goes on there"
        )
        raise typer.Exit(INTERRUPTED) from None
    counts = job.counts
    for line in pages_display.summary(counts):
        display.line(line, "bold")
    if request.shard and not (counts.done or counts.failed or counts.before or counts.aside):
        display.line(f"shard {request.shard} has nothing to do: documents go by their places")
    if counts.failed:
        raise typer.Exit(BAD)
