"""`sooner bench scale`: one worker and two, by the plain command and on Ray."""

from __future__ import annotations

from typing import Annotated

from sooner.cli import options
from sooner.cli.from_settings import from_settings

from ..bench import fields
from ..bench.scale.settings import ScaleBenchSettings
from .bench_parts import Add, Json, keep_in, read_result, run_bench


@from_settings
def scale(
    *,
    settings: Annotated[ScaleBenchSettings, fields.options(ScaleBenchSettings)],
    add: Add = False,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Parse scans by one worker and by two, each on a core of its own, with Ray and without.

    Pages a second are those of long runs beyond a short one, so start-up is told apart. With --add
    runs are added to those of --json's FILE.
    """
    from ..bench.scale.run import run

    before = read_result(json, "scale") if add else None
    run_bench(run, settings, json, debug, words=1, keep=keep_in(json), before=before)
