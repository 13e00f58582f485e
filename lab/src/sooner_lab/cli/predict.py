"""`sooner predict`: what a pair would gain, before anyone loads it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sooner.errors import SoonerError

if TYPE_CHECKING:
    from ..theory import Agreement, PredictedPair, Prediction

TIMES = "Explicit figures"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="predict")(predict)


def _number(metavar: str, text: str) -> Any:
    return typer.Option(metavar=metavar, help=text, rich_help_panel=TIMES)


def predict(
    paper: Annotated[
        str | None, typer.Option(metavar="NAME", help="A pair of the paper: llava-ov-7b-72b, ...")
    ] = None,
    target_ms: Annotated[float | None, _number("MS", "A plain target step, T_p.")] = None,
    target_extra_ms: Annotated[
        float, _number("MS", "What each further token of a target forward adds.")
    ] = 0.0,
    draft_ms: Annotated[float | None, _number("MS", "A draft step, T_q.")] = None,
    acceptance: Annotated[
        float | None, _number("A", "Chance that a draft token passes, 0 to 1.")
    ] = None,
    run_length: Annotated[
        float | None,
        _number("M", "Instead: draft tokens accepted between two rejections, the paper's M."),
    ] = None,
    tokens: Annotated[int | None, _number("N", "Length of an answer; by default 512.")] = None,
    target_prefill_ms: Annotated[float | None, _number("MS", "Needed for e2e.")] = None,
    draft_prefill_ms: Annotated[float | None, _number("MS", "By default 0.")] = None,
    transfer_ms: Annotated[float | None, _number("MS", "One message between both sides.")] = None,
    max_draft_tokens: Annotated[
        int, typer.Option(metavar="N", help="Try up to so many a round.")
    ] = 32,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Write it there too; - is stdout.")
    ] = None,
) -> None:
    """Simulate plain, vanilla and parallel speculative decoding from step times and acceptance.

    Figures come from options, or from the paper (--paper), where options replace its own. No model
    is loaded.
    """
    from ..theory import predict as simulate

    options = {
        "target_ms": target_ms,
        "target_extra_ms": target_extra_ms,
        "draft_ms": draft_ms,
        "acceptance": acceptance,
        "run_length": run_length,
        "tokens": tokens,
        "target_prefill_ms": target_prefill_ms,
        "draft_prefill_ms": draft_prefill_ms,
        "transfer_ms": transfer_ms,
    }
    made = simulate(_pair(paper, options), max_draft_tokens)
    if json_file != "-":
        show(made)
    if json_file is not None:
        _write(json_file, made)


def show(made: Prediction) -> None:
    """Print the table and the recommendation."""
    from ..bench.render import ReportTable, cell
    from .bench_parts import show_tables

    pair, best = made.pair, made.best
    heads = ["method", "drafts", "placement", "decode", "tokens/s", "e2e", "e2e seconds"]
    rows = [
        [
            row.method, cell(row.num_draft_tokens, "{}"), row.placement,
            f"{row.decode_speedup:.2f}×", f"{row.tokens_per_second:.1f}",
            cell(row.e2e_speedup, "{:.2f}×"), cell(row.e2e_seconds, "{:.1f}"),
        ]
        for row in made.rows
    ]  # fmt: skip
    title = f"{pair.name}: predicted, {pair.tokens} tokens"
    show_tables([ReportTable(title, heads, rows)], words=1)
    length = best.num_draft_tokens
    drafted = "" if length is None else f", {length} draft tokens a round"
    typer.echo(
        f"T_p / T_q = {pair.costs.ratio:.2f}, {pair.agreement.rate:.0%} of draft tokens pass. "
        f"Recommended: {best.method}{drafted}, placement {best.placement}."
    )


def _pair(paper: str | None, options: dict[str, Any]) -> PredictedPair:
    """A pair of the paper with what was given explicitly put in its place, or that alone."""
    from ..theory import from_paper

    pair = _bare(options) if paper is None else from_paper(paper)
    costs = {"target": _target(options), **_seconds(options, "draft", "transfer")}
    return replace(
        pair,
        costs=replace(pair.costs, **_known(costs)),
        **_known({"agreement": _agreement(options), "tokens": options["tokens"]}),
        **_known(_seconds(options, "target_prefill", "draft_prefill")),
    )


def _bare(options: dict[str, Any]) -> PredictedPair:
    """A pair of explicit figures alone.

    Raises:
        SoonerError: names all that are missing.
    """
    from ..theory import PredictedPair, StepCosts

    agreement = _agreement(options)
    missing = [f"--{name}-ms" for name in ("target", "draft") if options[f"{name}_ms"] is None]
    missing += [] if agreement else ["--acceptance or --run-length"]
    if agreement is None or missing:
        raise SoonerError(f"missing {', '.join(missing)}; or name a pair of the paper with --paper")
    return PredictedPair(
        "given figures", StepCosts(_target(options), options["draft_ms"] / 1e3), agreement
    )


def _target(options: dict[str, Any]) -> Any:
    """T_p by the tokens in a forward, or `None` if it was not given."""
    from ..theory import Curve

    first, extra = options["target_ms"], options["target_extra_ms"]
    if first is None:
        if extra:
            raise SoonerError("--target-extra-ms needs --target-ms; give both")
        return None
    if extra < 0:
        raise SoonerError(f"--target-extra-ms is {extra}; a further token costs 0 or more")
    return Curve(((1, first / 1e3), (2, (first + extra) / 1e3)))


def _agreement(options: dict[str, Any]) -> Agreement | None:
    from ..theory import Agreement, renewal
    from ..theory.predict import SAMPLE

    rate, accepted = options["acceptance"], options["run_length"]
    if rate is not None and accepted is not None:
        raise SoonerError("both --acceptance and --run-length were given; give one of them")
    if accepted is not None:
        rate = renewal.rate_of_run(accepted)
    return None if rate is None else Agreement.even(rate, SAMPLE)


def _seconds(options: dict[str, Any], *names: str) -> dict[str, float | None]:
    values = {name: options[f"{name}_ms"] for name in names}
    return {name: None if value is None else value / 1e3 for name, value in values.items()}


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _write(path: str, made: Prediction) -> None:
    from sooner.io import check_writable, write_json

    if path == "-":
        typer.echo(json.dumps(made.as_dict(), indent=1))
    else:
        check_writable(Path(path))
        write_json(made.as_dict(), path)
