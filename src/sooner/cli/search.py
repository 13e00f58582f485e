"""`sooner search`: sparse patterns of a model's attention heads, searched once, kept in a file."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..checks import check_whole
from ..errors import SoonerError
from . import options
from .display import Display
from .from_settings import from_settings

if TYPE_CHECKING:
    from ..sparse.search import SearchSettings
    from ..tasks.search import Searched

BAD, INTERRUPTED = 2, 130
commands = typer.Typer(help="Search for what makes a model faster.", no_args_is_help=True)

Frames = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Frames of each sample; by default what the model samples, of the miniature 240.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.add_typer(commands, name="search")


@commands.callback()
def _group() -> None:
    """Search for what makes a model faster."""


@commands.command()
@from_settings
def patterns(
    *,
    sample: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="CLIP", help="A video to search on; several are averaged. Long ones say more."
        ),
    ] = None,
    frames: Frames = None,
    fps: options.Fps = None,
    prompt: options.Prompt = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Where the patterns go; else patterns.json."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is there already.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Most that a head may cost, of dense attention; by default the paper's: 1k "
            "global and 4k local tokens in 25k.",
        ),
    ] = None,
    max_error: Annotated[
        float,
        typer.Option(metavar="E", help="Heads whose output is further off than this stay dense."),
    ] = 0.5,
    min_recall: Annotated[
        float, typer.Option(metavar="R", help="Heads that keep less attention stay dense.")
    ] = 0.0,
    queries: Annotated[
        int, typer.Option(metavar="N", help="Queries of each modality that are scored.")
    ] = 128,
    boundaries: Annotated[
        bool, typer.Option("--boundaries/--no-boundaries", help="Try boundaries of modalities.")
    ] = True,
    cost: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What a pattern costs: measured on the device, flops, or auto (measured on GPUs).",
        ),
    ] = "auto",
    break_even: Annotated[
        bool,
        typer.Option(
            "--break-even/--no-break-even",
            help="Measure from which length on the patterns are faster.",
        ),
    ] = True,
    models: Annotated[options.Models, options.SINGLE_MODEL],
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Find a sparse pattern for every attention head, by the error of its output.

    Interrupted, the same command goes on where it was. Use the file with `sooner caption
    --prefill FILE` or `sooner.MMInference.load(FILE)`; `sooner show patterns FILE` draws it.
    """
    from ..sparse.search import SearchSettings

    settings = SearchSettings(
        budget=budget,
        max_error=max_error,
        min_recall=min_recall,
        queries=queries,
        boundaries=boundaries,
        cost=cost,
        break_even=break_even,
    )
    if output is None and models.model is None and not sample:
        raise SoonerError(
            "nothing to search on; name --model and a long video with --sample, or -o FILE alone "
            "for the patterns of the bundled miniature on clips of its own"
        )
    output = output or Path("patterns.json")
    if output.exists() and not overwrite:
        raise SoonerError(f"'{output}' is there already; use --overwrite, or another -o")
    if not output.parent.is_dir():
        raise SoonerError(f"folder '{output.parent}' does not exist; make it, or use another -o")
    job = _Job(settings, output, Display(quiet), debug)
    try:
        job.run(models, sample or [], frames, fps, prompt)
    except KeyboardInterrupt:
        job.display.error(job.interrupted())
        raise typer.Exit(INTERRUPTED) from None


class _Job:
    """One search from the command line to the file."""

    def __init__(
        self, settings: SearchSettings, output: Path, display: Display, debug: bool
    ) -> None:
        self.settings, self.output, self.display, self.debug = settings, output, display, debug
        self.sidecar = output.with_name(f".{output.name}.partial")
        self.progress = ""

    def run(
        self,
        models: options.Models,
        samples: list[Path],
        frames: int | None,
        fps: float | None,
        prompt: str | None,
    ) -> None:
        from ..tasks.search import SearchCallbacks, SearchRequest, search_patterns

        if models.model is not None and not samples:
            raise SoonerError("no sample given; name a long video with --sample")
        _check_files(samples)
        display = self.display
        with tempfile.TemporaryDirectory() as folder, display.job():
            display.stage("load")
            pair = models.load(self.debug)
            if not samples:
                samples, frames = _generated(Path(folder), frames, fps)
            wish = SearchRequest(tuple(samples), frames, fps, prompt)
            callbacks = SearchCallbacks(display.decoded, display.stage, self._step)
            result = search_patterns(pair, wish, self.settings, self.sidecar, callbacks)
        result.table.save(self.output)
        self._summary(result)

    def _step(self, stage: str, done: int, total: int) -> None:
        self.progress = f"{done} of {total} layers, {stage}"
        self.display.stage(stage, total)
        self.display.advance(done, total)

    def _summary(self, result: Searched) -> None:
        from ..tasks.search import means, patterns_by_kind

        table, display = result.table, self.display
        kinds = ", ".join(f"{name} {count}" for name, count in patterns_by_kind(table).items())
        display.line(f"  heads: {kinds}")
        record: dict[str, Any] = means(table)
        display.line(
            f"  on the samples: output error {record['score']:.3f}, recall {record['recall']:.3f}, "
            f"{100 * record['cost']:.0f} % of dense attention's pairs (means over all heads; mode: "
            "approximate)"
        )
        if self.settings.break_even:
            display.line(f"  dense below {table.dense_below} tokens ({table.about['break_even']})")
        display.line(f"  saved '{self.output}'", "bold")

    def interrupted(self) -> str:
        if not self.sidecar.is_dir():
            return "interrupted before the first layer was done"
        at = f" at {self.progress}" if self.progress else ""
        return f"interrupted{at}; the same command goes on from there ('{self.sidecar}')"


def _check_files(samples: list[Path]) -> None:
    """Refuse what is no video before a model is loaded.

    Raises:
        SoonerError: names the file.
    """
    from ..tasks.identity import find
    from ..tasks.video import probe

    for path in samples:
        if path.is_dir():
            raise SoonerError(f"'{path}' is a folder; name the videos, each with --sample")
        find([path])
        probe(path)


def _generated(folder: Path, frames: int | None, fps: float | None) -> tuple[list[Path], int]:
    """Returns long clips of the miniature's world, and how many frames of each are looked at."""
    from ..tasks.search import GENERATED_FRAMES, GENERATED_SEEDS, generated_clip

    if fps is not None:
        raise SoonerError("--fps needs a --sample; the generated clips take --frames")
    count = GENERATED_FRAMES if frames is None else frames
    check_whole("frames", count)
    return [generated_clip(folder, count, seed) for seed in GENERATED_SEEDS], count
