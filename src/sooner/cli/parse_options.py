"""Options of `sooner parse`, and the run that they ask for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SoonerError, unknown
from . import options
from .display import Display

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..documents import Document
    from ..tasks.parse import PageParser, ParseJob, ParseSettings
    from ..tasks.parse.counts import Counts

Inputs = Annotated[
    list[Path],
    typer.Argument(metavar="INPUT...", help="PDFs, pictures, folders of them, or patterns."),
]
Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FOLDER", help="Mirrors the inputs' tree.")
]
Pages = Annotated[
    str | None, typer.Option(metavar="1-4,7", help="Pages of each document, from 1; 10- is open.")
]
Drafter = Annotated[
    str,
    typer.Option(
        metavar="NAME[,NAME]",
        help="auto (a PDF's own text where it is good, else OCR), ocr, text-layer, saved:FILE "
        "(PP-StructureV3, MinerU, docling, dots.ocr), text:FILE, or none.",
    ),
]
Tolerance = Annotated[
    float,
    typer.Option(metavar="T", help="1 is exact; below (the paper has 0.75) draft tokens pass."),
]
Stages = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="both (each region on its own, then the page), page, or regions (approximate).",
    ),
]
Form = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How the model writes: markdown, markdown-html, dots or html; by default as its "
        "family does.",
    ),
]
Format = Annotated[
    str, typer.Option("--format", metavar="md,json,html", help="Files of each page and document.")
]
Timeout = Annotated[
    float, typer.Option(metavar="S", help="Seconds for the drafter; then a page decodes plainly.")
]
Resume = Annotated[
    bool,
    typer.Option("--resume/--fresh", help="Skip pages of the same content and settings, or not."),
]
OnError = Annotated[
    str, typer.Option("--on-error", metavar="skip|stop", help="What a page that fails does.")
]
Dpi = Annotated[float, typer.Option(metavar="N", help="Resolution of the pages' pictures.")]
Longest = Annotated[
    int | None, typer.Option(metavar="N", help="Pixels of their longer side, instead of --dpi.")
]
Password = Annotated[str | None, typer.Option(metavar="TEXT", help="Of encrypted PDFs.")]
Overlay = Annotated[
    bool, typer.Option("--overlay/--no-overlay", help="A picture of each page's regions.")
]


@dataclass(frozen=True)
class Wanted:
    """A run as it was asked for; see the options."""

    inputs: list[Path]
    output: Path
    settings: ParseSettings
    pages: str | None
    model: str | None
    drafter: str
    formats: str
    overlay: bool
    timeout: float
    resume: bool
    on_error: str
    dpi: float
    longest: int | None
    password: str | None
    device: str
    dtype: str
    threads: int | None
    debug: bool

    def job(self, on_page: Callable[[dict[str, Any], Counts], None]) -> ParseJob:
        """The run, planned: documents found, pages counted, the manifest read.

        Raises:
            SoonerError: no documents, no model, no drafter, or an output that can't be written.
        """
        from ..documents import PageRange, Resolution, find_documents
        from ..tasks.parse import Delivery, ParseJob
        from ..tasks.parse.drafters import drafter_hash, guard, make_drafter
        from ..tasks.parse.files import check_formats
        from ..tasks.parse.identity import parser_name, settings_hash
        from ..tasks.parse.plan import Intake

        self._check()
        documents = self._apart(find_documents(self.inputs))
        pages = PageRange() if self.pages is None else PageRange.parse(self.pages)
        intake = Intake(pages, Resolution(self.dpi, self.longest), self.password)
        drafter = guard(make_drafter(self.drafter), self.drafter, self.timeout)
        hashed = settings_hash(
            self.settings,
            parser_name(self.model),
            self.dtype,
            drafter_hash(self.drafter),
            intake.resolution,
        )
        return ParseJob(
            documents=documents,
            delivery=Delivery(self.output, check_formats(self.formats), self.overlay),
            settings_hash=hashed,
            intake=intake,
            drafter=drafter,
            fresh=not self.resume,
            stop_on_error=self.on_error == "stop",
            on_page=on_page,
            debug=self.debug,
        )

    def _apart(self, documents: list[Document]) -> list[Document]:
        """Without the pictures of earlier results, if these lie within the inputs."""
        output = self.output.resolve()
        if not any(folder.resolve() in output.parents for folder in self.inputs):
            return documents
        return [one for one in documents if output not in one.path.resolve().parents]

    def _check(self) -> None:
        if self.on_error not in ("skip", "stop"):
            raise unknown("on-error", self.on_error, ("skip", "stop"))
        if not self.timeout > 0:
            raise SoonerError(f"timeout is {self.timeout:g}; it must be above 0")
        if self.threads is not None and self.threads < 1:
            raise SoonerError(f"threads is {self.threads}; it must be a whole number of 1 or more")

    def load(self, display: Display) -> PageParser:
        """The model; a miniature gets one thread, as `options.load_models` explains.

        Raises:
            SoonerError: it can't be loaded, or does not read pages.
        """
        import torch

        from ..tasks.parse import PageParser, load_parser

        if not self.debug:
            options.hush()
        with display.job():
            display.stage("load")
            pair = load_parser(self.model, self.device, self.dtype)
            parser = PageParser(pair, self.settings)
        if self.threads is not None or pair.miniature is not None:
            torch.set_num_threads(self.threads or 1)
        return parser
