"""`sooner verify`: is a method's output that of plain decoding?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SoonerError
from . import options
from .display import Display

BUG, BAD = 1, 2


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="verify")(verify)


def verify(
    files: options.Files,
    model: options.Model = None,
    draft: options.Draft = None,
    method: options.Method = None,
    window: options.Window = "auto",
    head: options.Head = None,
    prune: options.Prune = None,
    placement: options.Placement = "auto",
    frames: options.Frames = None,
    fps: options.Fps = None,
    prompt: options.Prompt = None,
    max_new_tokens: options.MaxNewTokens = 256,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write ids and verdicts there.")
    ] = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Compare a method, token by token, with HF's own plain decoding.

    Each video gets a verdict: identical, tie (the two best scores differ by less than rounding
    explains) or bug. Exit code 1 if any is a bug.
    """
    from ..tasks import identity as found
    from ..tasks.settings import CaptionSettings, parse_window
    from ..tasks.video import probe

    if debug:
        options.log_decisions()
    settings = CaptionSettings(
        method=method,
        window=parse_window(window),
        prune=prune,
        placement=placement,
        frames=frames,
        fps=fps,
        prompt=prompt,
        max_new_tokens=max_new_tokens,
        head=None if head is None else str(head),
    )
    display = Display(quiet)
    videos = found.find(files)
    probe(videos[0])
    with display.job():
        display.stage("load")
        pair = options.load_models(model, draft, device, dtype, threads, debug)
    reports = [report for path in videos if (report := _one(path, pair, settings, display))]
    if json_file is not None:
        _write(json_file, reports)
    if any(report["verdict"] == "bug" for report in reports):
        raise typer.Exit(BUG)
    if len(reports) < len(videos):
        raise typer.Exit(BAD)


def _one(path: Path, pair: Any, settings: Any, display: Display) -> dict[str, Any] | None:
    from ..tasks.verify import verify as compare

    try:
        with display.job():
            report = compare(path, pair, settings, display.stage)
    except SoonerError as error:
        display.error(str(error))
        return None
    typer.echo(f"{path}: {report['method']} ({report['mode']}): {describe(report)}")
    return report


def describe(report: dict[str, Any]) -> str:
    """The verdict of a report in one line."""
    if report["verdict"] == "identical":
        return f"identical, {report['tokens']} tokens"
    gap, top2, allowed = (
        "unknown" if report[name] is None else f"{report[name]:.3g}"
        for name in ("gap", "top2_gap", "tolerance")
    )
    return (
        f"{report['verdict']}: token {report['divergence']} is {report['candidate']} instead of "
        f"{report['reference']} (gap {gap}, top-2 gap {top2}, rounding explains {allowed})"
    )


def _write(path: Path, reports: list[dict[str, Any]]) -> None:
    try:
        path.write_text(json.dumps(reports, indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise SoonerError(f"'{path}' can't be written: {error.strerror}") from error
