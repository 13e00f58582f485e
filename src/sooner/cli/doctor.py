"""`sooner doctor`: versions, devices, what is installed, what each extra would add; models; why a
drafter accepts little."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__, miniatures
from ..plugins import LAB, WEIGHTS
from ..provenance import installed
from . import BUG, options
from .display import Display
from .from_settings import Fields, from_settings

commands = typer.Typer()


@commands.callback(invoke_without_command=True)
def doctor(
    ctx: typer.Context,
    models: Annotated[
        bool, typer.Option("--models", help="Print which types of models are decoded, instead.")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="Write that table there, as JSON.")] = None,
) -> None:
    """Print versions, devices, what is installed and what each extra would add."""
    if ctx.invoked_subcommand is not None:
        return
    if models or json is not None:
        print_models(json)
        return
    for title, rows in (
        ("versions", versions()),
        ("devices", _safely(devices)),
        ("miniatures", _safely(lambda: [("installed", ", ".join(miniatures.names()) or "none")])),
        ("extras", extras()),
    ):
        typer.echo(title)
        print_table(rows, "  ")


@commands.command()
@from_settings
def drafter(
    *,
    target: Annotated[str, typer.Argument(help="Target model; video is the miniature.")],
    drafter: Annotated[str, typer.Argument(help="Folder or name of its trained drafter.")],
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Prompts: text of one a line, JSONL of {prompt, image|video}, a picture, a video.",
        ),
    ] = None,
    template: Annotated[
        bool, typer.Option(help="Write prompts without a file by the chat template.")
    ] = True,
    max_new_tokens: Annotated[
        int, typer.Option(min=2, metavar="N", help="Where an answer is cut.")
    ] = 64,
    place: Annotated[options.Models, Fields(only=("device", "dtype", "threads"))],
    display: Display,
) -> None:
    """Find out why a trained drafter accepts little.

    The target answers a sample of prompts; the drafter's acceptance by depth is measured as it is
    configured, and with one change at a time: layers, norm, positions, vocabulary, LM head, chat
    template, pixels, dtype. Exit code 1 if a change is clearly better.
    """
    from ..tasks.drafter_doctor import diagnose

    if target in miniatures.names() and not Path(target).exists():
        target = str(miniatures.find(target).target)
    with display.loading():
        pair = replace(place, model=target).load(sees=False)
    diagnosis = diagnose(
        pair, drafter, sample, template=template, tokens=max_new_tokens, on_change=display.line
    )
    print_table(list(diagnosis.rows()))
    typer.echo(diagnosis.summary())
    if diagnosis.remedy is not None:
        raise typer.Exit(BUG)


def print_models(path: Path | None) -> None:
    """Print the types that transformers lists, and which of them are decoded.

    A type that only another version of transformers has says so.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    from ..io import check_writable, write_json
    from ..models.support import seen_with, supported

    here, entries = set(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES), supported()
    if path is not None:
        check_writable(path)
        rows = [asdict(entry) | {"installed": entry.model_type in here} for entry in entries]
        write_json({"transformers": seen_with(), "types": rows}, path)
    absent = f"of transformers {seen_with()}, not of the one here"
    table = [("model_type", "status", "adapter", "trees", "reason")]
    for entry in entries:
        reasons = [entry.reason, "" if entry.model_type in here else absent]
        row = entry.model_type, entry.status, entry.adapter, "yes" if entry.trees else "no"
        table.append((*row, "; ".join(filter(None, reasons))))
    print_table(table)
    for name in sorted(here - {entry.model_type for entry in entries}):
        typer.echo(f"{name}: not tried; transformers {seen_with()} did not have it")
    counts = Counter(entry.status for entry in entries)
    typer.echo(", ".join(f"{counts[name]} {name}" for name in ("exact", "words only", "refused")))


def print_table(rows: Sequence[tuple[str, ...]], indent: str = "") -> None:
    """Print columns of texts."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo(indent + "  ".join(map(str.ljust, row, widths)).rstrip())


Rows = list[tuple[str, str]]


def versions() -> Rows:
    """This package, its miniatures and its lab, Python, and what the package needs."""
    needed = [name for name, extra in requirements("sooner") if extra is None]
    rows = [("sooner", __version__)]
    for name, brings in ((WEIGHTS, "trained tiny models"), (LAB, "benchmarks, data sets")):
        rows.append((name, installed(name) or f"missing: pip install {name} ({brings})"))
    rows.append(("python", platform.python_version()))
    return rows + [(name, installed(name) or "missing: pip install " + name) for name in needed]


def devices() -> Rows:
    """Returns processors, threads and accelerators, as torch sees them."""
    import torch

    rows = [
        ("cpu", f"{os.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"),
        ("torch build", str(torch.__version__)),
        ("default", "cuda" if torch.cuda.is_available() else "cpu"),
    ]
    for index in range(torch.cuda.device_count()):
        properties: Any = torch.cuda.get_device_properties(index)
        size = f"{properties.total_memory / 2**30:.0f} GiB"
        rows.append((f"cuda:{index}", f"{properties.name}, {size}"))
    if torch.cuda.device_count() == 0:
        rows.append(("cuda", "no device; everything runs on the CPU"))
    return rows


def extras() -> Rows:
    """Returns what each extra of the package and its lab holds, and what of it is here."""
    rows: dict[str, list[str]] = {}
    for whole in ("sooner", LAB):
        for name, extra in requirements(whole):
            if extra is not None:
                text = f"{name} {installed(name) or '(missing)'}"
                rows.setdefault(f"{whole}[{extra}]", []).append(text)
    for extra, names in rows.items():
        if any(name.endswith("(missing)") for name in names):
            names[-1] += f"; pip install '{extra}' adds what is missing"
    return [(extra, ", ".join(names)) for extra, names in rows.items()]


def requirements(whole: str) -> list[tuple[str, str | None]]:
    """Returns `(package, extra or None)` of all that a distribution's metadata names."""
    try:
        lines = importlib.metadata.requires(whole) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    matches = (re.match(r"""([\w.-]+)(?:.*extra *== *['"]([\w-]+))?""", line) for line in lines)
    return [(match[1], match[2]) for match in matches if match is not None]


def _safely(look: Callable[[], Rows]) -> Rows:
    """Returns what `look` returns, or its error as a text, so that the report goes on."""
    try:
        return look()
    except Exception as error:
        return [("unknown", f"{type(error).__name__}: {' '.join(str(error).split())}")]
