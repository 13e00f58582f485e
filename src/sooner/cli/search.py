"""`sooner search`: sparse patterns of a model's attention heads, searched once, kept in a file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from ..checks import option
from ..errors import SoonerError
from ..io import check_writable
from ..sparse.settings import SearchSettings
from ..tasks.settings import CaptionSettings
from . import INTERRUPTED, options
from .display import Display, figures
from .from_settings import Fields, from_settings

SAMPLED = Fields(only=("frames", "fps", "prompt"))
"""Fields of `CaptionSettings` that say how a video is seen."""

commands = typer.Typer(help="Search for what makes a model faster.", no_args_is_help=True)


@dataclass(frozen=True, kw_only=True)
class SearchJob(options.Videos):
    """What patterns are searched on, and where they go.

    Attributes:
        files: videos to search on; several are averaged. Long ones say more.
        sample: the bundled clip.
        output: where the patterns go.
        overwrite: replace what is there already.
        save_auto: save the patterns for `--prefill auto` on this machine, too.
    """

    sampling: Annotated[CaptionSettings, SAMPLED] = field(default_factory=CaptionSettings)
    output: Path | None = option(None, metavar="FILE", names=("-o", "--output"))
    overwrite: bool = False
    save_auto: bool = False
    settings: SearchSettings = field(default_factory=SearchSettings)
    models: Annotated[options.Models, options.SINGLE_MODEL] = field(default_factory=options.Models)

    def target(self) -> Path:
        """Returns where the patterns go, checked before any work.

        Raises:
            SoonerError: the file can't be written.
        """
        output = self.output or Path("patterns.json")
        if output.exists() and not self.overwrite:
            raise SoonerError(f"'{output}' is there already; use --overwrite, or another -o")
        check_writable(output, "-o")
        return output


@commands.command()
@from_settings
def patterns(*, request: SearchJob, display: Display) -> None:
    """Find a sparse pattern for every attention head, by the error of its output.

    Interrupted, the same command goes on where it was. Use the file with `sooner caption
    --prefill FILE` or `sooner.MMInference.load(FILE)`.
    """
    from ..models import adapt
    from ..sparse.tables import cached_path
    from ..tasks.identity import find
    from ..tasks.search import search_patterns
    from ..tasks.video import probe

    output, progress = request.target(), ""
    videos = find(request.paths(request.models.model))
    sidecar = output.with_name(f".{output.name}.partial")
    for path in videos:  # what is no video is refused before a model is loaded
        probe(path)

    def step(stage: str, done: int, total: int) -> None:
        nonlocal progress
        progress = f" at {done} of {total} layers, {stage}"
        display.stage(stage, total)
        display.advance(done, total)

    try:
        with display.loading():
            pair = request.models.load()
        with display.job():
            table = search_patterns(
                pair, videos, request.settings, request.sampling, sidecar,
                on_decode=display.decoded, on_stage=display.stage, on_step=step,
            )  # fmt: skip
            table.save(output)
            if request.save_auto:
                table.save(cached_path(adapt(pair.target.model)))
    except KeyboardInterrupt:
        text = f"interrupted{progress}; the same command goes on from there ('{sidecar}')"
        if not sidecar.exists():
            text = "interrupted before the first layer was done"
        display.error(text)
        raise typer.Exit(INTERRUPTED) from None
    heads = [head for layer in table.layers for head in layer]
    kinds = Counter(head.pattern.name for head in heads)
    means = {}
    for name in ("score", "recall", "cost"):
        if values := [value for head in heads if (value := getattr(head, name)) is not None]:
            means[name] = sum(values) / len(values)
    display.line(f"  heads: {figures(dict(kinds.most_common()))}")
    display.line(f"  on the samples, means over all heads (mode: approximate): {figures(means)}")
    if request.settings.break_even:
        display.line(f"  dense below {table.dense_below} tokens ({table.about['break_even']})")
    display.line(f"  saved '{output}'", "bold")
