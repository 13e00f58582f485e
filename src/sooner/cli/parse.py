"""`sooner parse`: documents to Markdown, drafted by text layer or OCR, verified by a model if one
is named, resumable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ..errors import SoonerError
from . import BAD, INTERRUPTED
from .display import Display
from .from_settings import Fields, from_settings
from .parse_options import ParseOptions

if TYPE_CHECKING:
    from ..ray import RayJob
    from ..tasks.parse import ParseJob

FLAG, HERE = "--ray", "local"

ADDRESS = re.compile(
    r"auto|local|ray://.*|[\w.-]+:\d+|(localhost|\d+\.\d+\.\d+\.\d+|\[[\da-fA-F:]+\])(:\w*)?"
)
"""What is taken for one, and refused by what connects if no port is named."""


class WithAddress(TyperCommand):
    """A command whose `--ray` may be followed by an address."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_address(args))


def with_address(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments, with `local` behind a `--ray` that no address follows."""
    values = list(arguments)
    end = values.index("--") if "--" in values else len(values)
    for at in range(end - 1, -1, -1):
        follows = values[at + 1] if at + 1 < end else ""
        if values[at] == FLAG and not ADDRESS.fullmatch(follows):
            values.insert(at + 1, HERE)
    return values


COMMAND = WithAddress


@from_settings
def parse(
    *,
    request: Annotated[ParseOptions, Fields(without=("debug",))],
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

    request = replace(request, debug=display.debug)
    if sample:  # which is for the bundled miniature
        from .. import miniatures
        from ..tasks.parse.identity import DEMO

        page = miniatures.find("document").sample
        inputs = [*(request.inputs or []), *([str(page)] if page is not None else [])]
        request = replace(request, inputs=inputs, model=request.model or DEMO)
    if not request.inputs:
        raise SoonerError("nothing to parse; name a file or a folder, or use --sample")
    pages_display = PagesDisplay(display)
    if request.ray is None:
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
    for line in pages_display.summary(job.counts):
        display.line(line, "bold")
    counts = job.counts
    if request.shard is not None and not (
        counts.done or counts.failed or counts.before or counts.aside
    ):
        display.line(f"shard {request.shard} has nothing to do: documents go by their places", "")
    if counts.failed:
        raise typer.Exit(BAD)
