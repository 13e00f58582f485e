"""`sooner bench documents`: hierarchical drafts by real OCR, on pages of full length."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sooner.cli import options

from .bench_parts import Arms, Json, count, run_bench, some_of


def documents(
    pages: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Pages that are counted; by default 100.")
    ] = None,
    arms: Arms = None,
    timed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Pages that are timed; by default 12.")
    ] = None,
    curve_pages: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Pages of the curve of draft quality.")
    ] = None,
    box_pages: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Pages of a target that writes boxes.")
    ] = None,
    reader_pages: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Pages that measure a trained reader's epsilon."),
    ] = None,
    reader: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Checkpoint of the reader that `sooner train miniature document` trains; by "
            "default the bundled miniature reads.",
        ),
    ] = None,
    wear: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the scans: clean, fair, poor or bad.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Only tell what is accepted at every wear.")
    ] = False,
    drafts: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep what OCR reads here, for further runs."),
    ] = None,
    prices: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Step times of a GPU, as JSON.")
    ] = None,
    layers: Annotated[int | None, count("Layers of the target that is timed.")] = None,
    width: Annotated[int | None, count("Its width, a multiple of 32.")] = None,
    visual: Annotated[int | None, count("Visual tokens of a page.")] = None,
    threads: Annotated[int, count("torch threads.")] = 1,
    seed: Annotated[int, typer.Option(metavar="S", help="Of pages and weights.")] = 20_261_123,
    json: Json = None,
    debug: options.Debug = False,
) -> None:
    """Count and time the stages of HSD on pages of 800 to 2,000 tokens, drafted by real OCR.

    A scripted target says each page's text; its forwards are real. Exits with 1 when a text is not
    the page's.
    """
    from ..bench.documents.page import faults
    from ..bench.documents.run import run
    from ..bench.documents.settings import COUNTED, DocumentsSettings

    given = {
        "pages": pages,
        "arms": some_of("arm", arms, COUNTED, "plain"),
        "timed": timed,
        "curve_pages": curve_pages,
        "box_pages": box_pages,
        "reader_pages": reader_pages,
        "reader": reader,
        "wear": wear,
        "drafts": drafts,
        "prices": prices,
        "layers": layers,
        "width": width,
        "visual": visual,
    }
    asked = {name: value for name, value in given.items() if value is not None}
    settings = replace(DocumentsSettings(), **asked)  # type: ignore[arg-type]
    settings = replace(settings, calibrate=calibrate, threads=threads, seed=seed)
    settings.check()
    result = run_bench(run, settings, json, debug, words=1)
    for fault in (found := faults(result)):
        typer.echo(fault, err=True)
    if found:
        raise typer.Exit(1)
