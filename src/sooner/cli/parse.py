"""`sooner parse`: documents to Markdown, drafted by text layer or OCR, verified by a model if one
is named, resumable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from . import options
from . import parse_options as asked
from .display import Display
from .parse_display import PagesDisplay

if TYPE_CHECKING:
    from ..tasks.parse import ParseJob

BAD, INTERRUPTED = 2, 130


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="parse")(parse)


def parse(
    output: asked.Output,
    inputs: asked.Inputs = None,
    sample: asked.Sample = False,
    pages: asked.Pages = None,
    model: asked.Model = None,
    trust_remote_code: asked.TrustRemoteCode = False,
    drafter: asked.Drafter = "auto",
    tolerance: asked.Tolerance = 1.0,
    stages: asked.Stages = "auto",
    nodes: asked.Nodes = "auto",
    max_nodes: asked.MaxNodes = 64,
    depth: asked.Depth = 64,
    sure: asked.Sure = 0.95,
    form: asked.Form = None,
    format_: asked.Format = "md,json",
    prompt: options.Prompt = None,
    region_prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The same about a region's crop.")
    ] = None,
    max_new_tokens: options.MaxNewTokens = 8192,
    margin: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Pixels around a region's crop, for models that don't cut pages into squares.",
        ),
    ] = 8,
    prefill: options.Prefill = None,
    resume: asked.Resume = True,
    on_error: asked.OnError = "skip",
    timeout: asked.Timeout = None,
    workers: asked.Workers = 1,
    dpi: asked.Dpi = None,
    longest: asked.Longest = None,
    password: asked.Password = None,
    overlay: asked.Overlay = True,
    compare: asked.Compare = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Parse documents into Markdown and regions, page by page, as the model alone would.

    Without --model the result is the draft: a PDF's own text, or OCR's. With it the drafter reads
    the next page while the model confirms this one. Finished pages are kept
    whatever happens, and the same command goes on behind them. A page that fails does not stop
    the others; the exit code tells.
    """
    from ..tasks.parse import ParseSettings
    from ..tasks.parse.drafting import processes_of
    from ..tasks.settings import parse_window

    if debug:
        options.log_decisions()
    settings = ParseSettings(
        stages=stages,
        sure=sure,
        tolerance=tolerance,
        form=form,
        prompt=prompt,
        region_prompt=region_prompt,
        max_new_tokens=max_new_tokens,
        margin=margin,
        nodes=parse_window(nodes, "nodes"),
        max_nodes=max_nodes,
        depth=depth,
        prefill=prefill,
        timeout=timeout,
    )
    display = Display(quiet)
    wanted = asked.Wanted(
        inputs=asked.inputs_of(inputs, sample),
        output=output,
        settings=settings,
        pages=pages,
        model=asked.model_of(model, sample),
        drafter=drafter,
        formats=format_,
        overlay=overlay,
        timeout=timeout,
        workers=workers,
        resume=resume,
        on_error=on_error,
        dpi=dpi,
        longest=longest,
        password=password,
        device=device,
        dtype=dtype,
        threads=threads,
        debug=debug,
        trust_remote_code=trust_remote_code,
        compare=compare,
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
