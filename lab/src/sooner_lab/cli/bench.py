"""`sooner bench`: measure by the protocol, keep the JSON, make the tables from it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sooner.errors import SoonerError

from .bench_command import Bench

BENCHES = (
    Bench("caption", "caption_settings:CaptionBenchSettings", "caption:run"),
    Bench("drafters", "caption_settings:DrafterBenchSettings", "drafters:run", 1),
    Bench("real", "real.settings:RealSettings", "real.run:run"),
    Bench("heads", "heads.settings:HeadsSettings", "heads.run:run"),
    Bench("mmspec", "mmspec_settings:MMSpecSettings", "mmspec:run"),
    Bench("pages", "pages.settings:PagesSettings", "pages.run:run"),
    Bench("papers", "papers.settings:PapersSettings", "papers.run:run", 8),
    Bench("parallel", "caption_settings:ParallelBenchSettings", "parallel.run:run", 1),
    Bench("act", "act.settings:ActSettings", "act.run:run"),
    Bench("parse", "parse.settings:ParseBenchSettings", "parse.run:run"),
    Bench("prefill", "prefill.settings:PrefillSettings", "prefill.run:run", adds=True),
    Bench("serve", "serve.settings:ServeBenchSettings", "serve.run:run"),
    Bench("imagine", "imagine.settings:ImagineBenchSettings", "imagine.run:run", 1),
    Bench("soak", "soak.settings:SoakSettings", "soak.run:run"),
    Bench("step", "step.settings:StepSettings", "step.run:run"),
)
"""Benches whose commands are made of their settings."""

group = typer.Typer(
    no_args_is_help=True, help="Measure methods against each other and against peers."
)


def register(app: typer.Typer) -> None:
    """Add the subcommands."""
    from .bench_gpu import gpu

    for bench in BENCHES:
        group.command(bench.name)(bench.command())
    group.command()(gpu)
    app.add_typer(group, name="bench")


@group.command()
def report(
    files: Annotated[list[Path], typer.Argument(metavar="JSON...", help="Results of a bench.")],
) -> None:
    """Write the Markdown page of each result beside it, and the figures if it has any."""
    import json

    from ..bench.report import markdown, write_figures

    for path in files:
        try:
            result = json.loads(path.read_text())
            page = markdown(result, path.name)
        except SoonerError:
            raise
        except (OSError, ValueError, KeyError) as error:
            raise SoonerError(
                f"'{path}' is no result of `sooner bench`: {type(error).__name__} {error}; make "
                "one with --json"
            ) from error
        path.with_suffix(".md").write_text(page)
        for made in (path.with_suffix(".md"), *write_figures(result, path)):
            typer.echo(f"wrote {made}")
