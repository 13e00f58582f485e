"""`sooner bench parse`: pages parsed plainly, by peers, and with an OCR pipeline's drafts."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from sooner.checks import check_whole
from sooner.cli import options
from sooner.cli.from_settings import option_of
from sooner.tasks.parse.settings import ParseSettings

from .bench_parts import (
    SEED,
    Add,
    Arms,
    Json,
    MaxNewTokens,
    count,
    exit_on_bugs,
    keep_in,
    listed,
    numbers,
    read_result,
    run_bench,
    some_of,
)

FULL: dict[str, Any] = {
    "pages": 12, "document_pages": 20, "clients": (1, 2, 4, 8, 16),
}  # fmt: skip
"""What `--full` measures instead of the defaults of `ParseBenchSettings`."""
FULL_EXACT = 200


def parse(
    model: options.Model = None,
    draft: Annotated[
        str | None,
        typer.Option(metavar="ID|DIR", help="Of the speculative arm; by default the miniature's."),
    ] = None,
    prompt: options.Prompt = None,
    form: Annotated[str | None, option_of(ParseSettings, "form")] = None,
    arms: Arms = None,
    parts: Annotated[str | None, listed("Only arms, document, exactness, clients.")] = None,
    pages: Annotated[int | None, count("Held-out pages of the arms; 2, or 12 with --full.")] = None,
    repeats: Annotated[int, count("Timed runs of each arm on each page.")] = 1,
    document_pages: Annotated[
        int | None, count("Of the PDFs that are parsed from end to end; 3, or 20 with --full.")
    ] = None,
    exact_pages: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Pages whose ids are compared with plain decoding's, besides; --full and --parts "
            "exactness take 200, a quarter of an hour.",
        ),
    ] = None,
    clients: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...",
            help="Pages under way at once, over one engine: pages a second with and without "
            "drafts; 1,2,4,8,16 with --full and --parts clients.",
        ),
    ] = None,
    client_pages: Annotated[int, count("Pages that are parsed with each of them.")] = 32,
    full: Annotated[
        bool,
        typer.Option("--full", help="More pages of every part, and 200 compared: an hour or more."),
    ] = False,
    max_new_tokens: MaxNewTokens = 512,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: Annotated[int, count("torch threads, and as many for OCR.")] = 1,
    seed: Annotated[int, typer.Option(metavar="S", help="Of the pages.")] = SEED,
    json: Json = None,
    add: Add = False,
    debug: options.Debug = False,
) -> None:
    """Time the arms on held-out pages and whole PDFs, real OCR being the drafter.

    With --json the file grows part by part, so that an interrupted run keeps what it has measured.
    Exits with 1 when an exact arm differs from plain decoding by more than a tie.
    """
    from ..bench.parse.settings import ARMS, PARTS, ParseBenchSettings

    before = read_result(json, "parse") if add else None
    if exact_pages is None:
        is_listed = parts is not None and "exactness" in parts
        exact_pages = FULL_EXACT if full or is_listed else 0
    under_way = numbers("clients", clients, "1,8") if clients else ()
    if not under_way and parts is not None and "clients" in parts:
        under_way = FULL["clients"]
    check_whole("--exact-pages", exact_pages, 0)
    limits: dict[str, Any] = {"pages": pages, "document_pages": document_pages}
    if under_way:
        limits["clients"] = under_way
    sizes = {name: value for name, value in limits.items() if value is not None}
    settings = ParseBenchSettings(
        model=model,
        draft=draft,
        prompt=prompt,
        form=form,
        arms=some_of("arm", arms, ARMS, "plain"),
        parts=some_of("part", parts, PARTS),
        **{**(FULL if full else {}), **sizes},
        repeats=repeats,
        exact_pages=exact_pages,
        client_pages=client_pages,
        max_new_tokens=max_new_tokens,
        device=device,
        dtype=dtype,
        threads=threads,
        seed=seed,
    )
    from ..bench.parse.run import run

    result = run_bench(run, settings, json, debug, keep=keep_in(json), before=before)
    rows = [*result.get("arms", []), *result.get("exactness", {}).get("rows", [])]
    rows += result.get("clients", {}).get("rows", [])
    exit_on_bugs(row for row in rows if row["mode"] == "exact")
