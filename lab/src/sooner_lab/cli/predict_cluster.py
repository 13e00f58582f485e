"""`sooner predict --cluster`: pages a day by machines, where that saturates, what a job costs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sooner.errors import SoonerError

if TYPE_CHECKING:
    from ..theory.cluster import Cluster, Scale, StageTimes

MACHINES = "1,4,16,64,256,1000"
PAGES = 100_000_000


@dataclass(frozen=True)
class ClusterOptions:
    """What was asked on the command line; `None` is what the stage times say, or the default."""

    stage_times: Path | None
    machines: str | None
    accelerators: int | None
    cpus: int | None
    in_flight: int | None
    pages: int | None
    price: float | None
    driver_ms: float | None
    storage: float | None
    fit: float | None
    machines_a_job: int | None

    @property
    def names(self) -> list[str]:
        """Names of the options that were given."""
        return [
            f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value is not None
        ]


def predict_cluster(options: ClusterOptions, json_file: str | None) -> None:
    """Simulate clusters of several sizes, and print or write what they do.

    Raises:
        SoonerError: no stage times, or figures that can't be.
    """
    from dataclasses import replace

    from ..theory.cluster import Cluster, StageTimes, fitted, scale

    if options.stage_times is None:
        raise SoonerError(
            "--cluster needs stage times; give an output folder of `sooner parse --model ...`, or "
            "a JSON of stage times, with --stage-times"
        )
    times = StageTimes.read(options.stage_times)
    if options.driver_ms is not None:
        times = replace(times, driver=options.driver_ms / 1e3)
    if options.storage is not None:
        times = replace(times, storage=options.storage)
    cluster = Cluster(
        accelerators=1 if options.accelerators is None else options.accelerators,
        cpus=options.cpus or 1,
        in_flight=options.in_flight or 1,
        price=options.price or 0.0,
        machines_a_job=options.machines_a_job or 0,
    )
    if options.fit is not None:
        times = fitted(times, cluster, options.fit)
    pages = PAGES if options.pages is None else options.pages
    made = scale(times, cluster, _sizes(options.machines or MACHINES), pages)
    result = {
        "bench": "cluster",
        **made.as_dict(),
        "cluster": _alike(cluster),
        "stage_times": times.as_dict(),
    }
    if json_file is not None:
        from sooner.provenance import provenance  # with torch, which a table does without

        result["provenance"] = provenance("cpu", "float64", seed=0)
    if json_file == "-":
        typer.echo(json.dumps(result, indent=1))
        return
    if json_file is not None:
        write(json_file, result)
    show(made, times, cluster)


def show(made: Scale, times: StageTimes, cluster: Cluster) -> None:
    """Print the table, and what it means."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    stages = ", ".join(
        f"{name} {times.mean(name):.3g}" for name in ("read", "draft", "prefill", "decode", "write")
    )
    console.print(
        f"{len(times.pages)} measured pages; seconds a page: {stages}; {cluster.in_flight} pages "
        f"at once decode {times.gain(cluster.in_flight):.3g}x as fast as one",
        highlight=False,
    )
    for note in times.notes:
        console.print(f"note: {note}", highlight=False)
    table = Table(title=f"{made.pages:,} pages: predicted", box=box.SIMPLE_HEAD, pad_edge=False)
    has_price = cluster.price > 0
    headings = [
        "machines",
        "parsers",
        "pages/s",
        "pages/day",
        "efficiency",
        "busiest",
        "starved",
        "time",
    ]
    for heading in [*headings, *(["cost"] if has_price else [])]:
        table.add_column(
            heading, justify="left" if heading == "busiest" else "right", overflow="fold"
        )
    for row in made.rows:
        cells = [
            f"{row.machines:,}",
            f"{row.accelerators:,}",
            _short(row.rate),
            _short(row.pages_a_day),
            f"{row.efficiency:.0%}",
            row.bottleneck,
            f"{row.starved:.0%}",
            _duration(row.hours),
        ]
        table.add_row(*cells, *([_short(row.cost)] if has_price else []))
    console.print(table)
    if made.saturates is None:
        console.print("No size saturates.", highlight=False)
        return
    first = next(row for row in made.rows if row.machines == made.saturates)
    console.print(
        f"At {first.machines:,} machines the {first.bottleneck} saturates: each does "
        f"{first.efficiency:.0%} of what it does in the best of the smaller clusters.",
        highlight=False,
    )


def write(path: str, data: Any) -> None:
    """Write JSON, as `sooner bench` does: whole or not at all, its folder is made.

    Raises:
        SoonerError: the file can't be written.
    """
    from sooner.io import check_writable, write_json

    check_writable(Path(path))
    write_json(data, path)


def _sizes(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise SoonerError(
            f"--machines is '{text}'; give numbers with commas, as 1,10,100"
        ) from None


def _alike(cluster: Cluster) -> dict[str, Any]:
    names = ("accelerators", "cpus", "in_flight", "ahead", "price", "machines_a_job")
    return {name: getattr(cluster, name) for name in names}


def _short(number: float) -> str:
    """Three digits, and thousands or millions by letter."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def _duration(hours: float) -> str:
    if hours < 1:
        return f"{60 * hours:.3g} min"
    return f"{hours:.3g} h" if hours < 48 else f"{_short(hours / 24)} d"
