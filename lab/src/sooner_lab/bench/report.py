"""Pages, tables and figures of result files, by the page that each bench declares."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from sooner.errors import SoonerError

from .declared import Data
from .render import Page, ReportTable, figures_folder

PAGES = (
    *("act", "caption", "drafters", "gpu", "heads", "imagine", "mmspec", "pages", "papers"),
    *("parallel", "parse", "prefill", "real", "serve", "soak", "step"),
)
"""Benches: a module with its page, `PAGE`, or a package with such a module `page`."""

STUDIES = {
    **dict.fromkeys(("arm", "canvas", "documents", "marks"), "9362df8"), "replay": "ac3015ad",
}  # fmt: skip
"""Benches that left the tree, and the last commit that has their code; results and pages stay."""


def page_of(result: Data, source: str = "the file") -> Page:
    """Return the page of a result's bench.

    Raises:
        KeyError: no bench has this name.
        SoonerError: the bench left the tree; the message names the last commit that has it.
    """
    bench = result["bench"]
    if bench in STUDIES:
        raise SoonerError(
            f"'{source}' is a result of `sooner bench {bench}`, which left the tree; write its "
            f"page at commit {STUDIES[bench]}"
        )
    if bench not in PAGES:
        raise KeyError(bench)
    module = import_module(f".{bench}", __package__)
    if hasattr(module, "__path__"):
        module = import_module(f".{bench}.page", __package__)
    page: Page = module.PAGE
    return page


def tables(result: Data) -> list[ReportTable]:
    """Return every table of a result."""
    return page_of(result).make_tables(result)


def markdown(result: Data, source: str) -> str:
    """Return the page of one result; `source` names the JSON it came from."""
    return page_of(result, source).markdown(result, source)


def write_figures(result: Data, path: Path) -> list[Path]:
    """Draw the figures of the result at `path`, in `figures/` beside it; not every bench has any.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    folder = figures_folder(path)
    names = page_of(result, path.name).write_figures(result, folder, path.stem)
    return [folder / name for name in names]
