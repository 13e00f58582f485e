"""`sooner parse`: documents to Markdown, drafted by text layer or OCR, verified by a model if one
is named, resumable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from . import options
from . import parse_options as asked
from .display import Display
from .from_settings import from_settings

if TYPE_CHECKING:
    from ..ray import RayJob
    from ..tasks.parse import ParseJob

BAD, INTERRUPTED = 2, 130


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
    given = list(arguments)
    end = given.index("--") if "--" in given else len(given)
    for at in range(end - 1, -1, -1):
        follows = given[at + 1] if at + 1 < end else ""
        if given[at] == FLAG and not ADDRESS.fullmatch(follows):
            given.insert(at + 1, HERE)
    return given


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="parse", cls=WithAddress)(parse)


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
    from ..interrupts import ended_as_interrupted
    from .parse_display import PagesDisplay

    if wanted.debug:
        options.log_decisions()
    display = Display(quiet)
    wanted = replace(
        wanted,
        inputs=asked.inputs_of(wanted.inputs, sample),
        model=asked.model_of(wanted.model, sample),
    )
    shown = PagesDisplay(display)
    if wanted.ray is None:
        job: ParseJob | RayJob = wanted.job(shown.page)
    else:
        from .parse_ray import ray_job

        job = ray_job(wanted, shown.page)
    shown.texts = job.store if sample else None
    try:
        with shown, ended_as_interrupted():  # no page is blamed for the end
            _run(job, wanted, display)
    except KeyboardInterrupt:
        display.error(f"interrupted: {shown.counts(job.counts)}; the same command goes on there")
        raise typer.Exit(INTERRUPTED) from None
    for line in shown.summary(job.counts):
        display.line(line, "bold")
    told = job.counts
    if wanted.shard is not None and not (told.done or told.failed or told.before or told.aside):
        display.line(f"shard {wanted.shard} has nothing to do: documents go by their places", "")
    if told.failed:
        raise typer.Exit(BAD)


def _run(job: ParseJob | RayJob, wanted: asked.ParseOptions, display: Display) -> None:
    """Do what is to be done; a drafter's process ends with it."""
    from ..tasks.parse import ParseJob
    from ..tasks.parse.drafters import processes_of

    if not isinstance(job, ParseJob):
        job.run()
        display.line(job.starvation.told(), "")
        return
    try:
        job.run(lambda: wanted.load(display, processes_of(job.drafter)))
    finally:
        close = getattr(job.drafter, "close", None)
        if close is not None:
            close()
