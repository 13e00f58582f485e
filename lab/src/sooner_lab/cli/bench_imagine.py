"""`sooner bench imagine`: arms that draw, timed, judged and looked into."""

from __future__ import annotations

from typing import Annotated

from sooner.cli import options
from sooner.cli.from_settings import from_settings

from ..bench import fields
from ..bench.imagine.settings import ImagineBenchSettings
from .bench_parts import Add, Json, exit_on_bugs, keep_in, read_result, run_bench


@from_settings
def imagine(
    *,
    settings: Annotated[ImagineBenchSettings, fields.options(ImagineBenchSettings)],
    json: Json = None,
    add: Add = False,
    debug: options.Debug = False,
) -> None:
    """Time plain decoding, HF, SJD, coupled draws and GSD alike, and study their drafts.

    The JSON grows part by part, so that an interrupted run keeps what it has
    measured. Exits with 1 when greedy decoding differs from the model's own by more than a tie.
    """
    from ..bench.imagine.run import run

    before = read_result(json, "imagine") if add else None
    result = run_bench(run, settings, json, debug, words=1, keep=keep_in(json), before=before)
    exit_on_bugs(result["arms"])
