"""`python -m sooner_lab.gpu`: `sooner bench gpu` where only torch, transformers, safetensors and
numpy are installed. Run it with `PYTHONPATH=src:lab/src` from a copy of the repository."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from sooner.errors import SoonerError, unknown

from .bench.gpu.settings import BUDGET, MORE, SECTIONS, GpuSettings

LABELS = ("model", "rows", "arm", "acceptance")
"""Keys of figures that say what they are of; lists under the same keys are figures themselves."""


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    made = argparse.ArgumentParser(prog="python -m sooner_lab.gpu", description=__doc__)
    made.add_argument("--json", type=Path, metavar="FILE", help="keep each section here as it ends")
    made.add_argument(
        "--section",
        action="append",
        metavar="NAME",
        help=f"only this one of {', '.join((*SECTIONS, *MORE))}; may be given several times",
    )
    made.add_argument("--budget", type=float, metavar="SECONDS", help=f"by default {BUDGET:.0f}")
    made.add_argument("--device", help="cuda unless --tiny")
    made.add_argument("--tiny", action="store_true", help="tiny shapes: a proof, no figures")
    made.add_argument("--add", action="store_true", help="keep what FILE has of other sections")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--revision", help="of this tree, where there is no repository to ask")
    return made


def settings_of(
    sections: Sequence[str] | None, budget: float | None, device: str | None, tiny: bool, seed: int
) -> GpuSettings:
    """The settings that the options ask for; sections run in the order of their worth.

    Raises:
        SoonerError: a section that is not known.
    """
    settings = GpuSettings.tiny() if tiny else GpuSettings()
    known = (*SECTIONS, *MORE)
    for name in sections or ():
        if name not in known:
            raise unknown("section", name, known)
    names = sections or SECTIONS
    return replace(
        settings,
        sections=tuple(name for name in known if name in names),
        budget=settings.budget if budget is None else budget,
        device=device or settings.device,
        seed=seed,
    )


def faults(result: dict[str, Any]) -> list[str]:
    """Why the command fails: red kernels, texts that differ, sections that ended by an error."""
    lines = []
    for name, figures in result["sections"].items():
        if figures.get("status") == "failed":
            lines.append(f"section {name} failed: {figures['error']}")
        if figures.get("ok") is False:
            lines.append(f"section {name}: a kernel is red")
        lines += [f"{where}: not plain's text" for where in other_texts(name, figures)]
    return lines


def other_texts(where: str, figures: Any) -> Iterator[str]:
    """Where a section's figures say that an arm has another text than plain decoding."""
    if isinstance(figures, list):
        for value in figures:
            yield from other_texts(where, value)
    elif isinstance(figures, dict):
        labels = [
            str(figures[key]) for key in LABELS if isinstance(figures.get(key), str | int | float)
        ]
        where = " ".join([where, *labels])
        if figures.get("identical") is False:
            yield where
        for key, value in figures.items():
            yield from other_texts(f"{where} {key}" if isinstance(value, dict) else where, value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; returns the exit code: 0, 1 for a fault, 2 for options that can't be honoured."""
    import transformers

    from sooner.io import check_writable

    from .bench.gpu.run import run
    from .bench.render import sections
    from .bench.report import tables
    from .bench.result_file import ResultFile, read_result

    options = parser().parse_args(arguments)
    transformers.logging.set_verbosity_error()
    signal.signal(signal.SIGTERM, _interrupt)  # `timeout` ends a run so

    try:
        if options.json is not None:
            check_writable(options.json)
        earlier = read_result(options.json, "gpu") if options.add else None
        settings = settings_of(
            options.section, options.budget, options.device, options.tiny, options.seed
        )
        result = run(settings, _emit, ResultFile(options.json, "gpu"), earlier, options.revision)
    except SoonerError as error:
        _emit(f"sooner: {error}")
        return 2
    except KeyboardInterrupt:
        _emit("interrupted; finished sections are kept")
        return 130
    print("\n".join(sections(tables(result))))
    for fault in (failures := faults(result)):
        _emit(fault)
    return int(bool(failures))


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _emit(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
