"""Options of `sooner parse`, and the run that they describe."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..checks import check_choice, check_whole
from ..errors import SoonerError
from ..tasks.parse.settings import ParseSettings
from . import options
from .display import Display
from .from_settings import Fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..documents import Document, Resolution
    from ..tasks.parse import DraftParser, PageParser, ParseJob
    from ..tasks.parse.result import Counts

Inputs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="INPUT...", help="PDFs, pictures, folders of them, or patterns."),
]
Sample = Annotated[
    bool,
    typer.Option(
        "--sample", help="The bundled page, whose Markdown is printed; by the bundled miniature."
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="ID_OR_PATH",
        help="Model that verifies the drafts; without it the drafts are the result, as DRAFT. "
        "'miniature' is the bundled demo, which reads its own made-up pages alone.",
    ),
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Decode each page plainly too: speed-up and parity.")
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
Format = Annotated[
    str, typer.Option("--format", metavar="md,json,html", help="Files of each page and document.")
]
Workers = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="Drafter processes that work ahead, on as many pages; 0 drafts each page in turn.",
    ),
]
Resume = Annotated[
    bool,
    typer.Option("--resume/--fresh", help="Skip pages of the same content and settings, or not."),
]
OnError = Annotated[
    str, typer.Option("--on-error", metavar="skip|stop", help="What a page that fails does.")
]
Dpi = Annotated[
    float | None,
    typer.Option(
        metavar="N", help="Resolution of the pages' pictures: 200, or the model's own size."
    ),
]
Longest = Annotated[
    int | None, typer.Option(metavar="N", help="Pixels of their longer side, instead of --dpi.")
]
Password = Annotated[str | None, typer.Option(metavar="TEXT", help="Of encrypted PDFs.")]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run the Python files of a checkpoint that transformers has no class for.",
    ),
]
Overlay = Annotated[
    bool, typer.Option("--overlay/--no-overlay", help="A picture of each page's regions.")
]


@dataclass(frozen=True)
class ParseOptions:
    """A run as it was asked for; see the options. Without a model, drafts are the result."""

    output: Output
    inputs: Inputs = None
    pages: Pages = None
    model: Model = None
    trust_remote_code: TrustRemoteCode = False
    drafter: Drafter = "auto"
    settings: Annotated[
        ParseSettings, Fields(without=("region_rows", "reference_window", "repetition"))
    ] = field(default_factory=ParseSettings)
    formats: Format = "md,json"
    resume: Resume = True
    on_error: OnError = "skip"
    workers: Workers = 1
    dpi: Dpi = None
    longest: Longest = None
    password: Password = None
    overlay: Overlay = True
    compare: Compare = False
    device: options.Device = "auto"
    dtype: options.Dtype = "auto"
    threads: options.Threads = None
    debug: options.Debug = False

    def job(self, on_page: Callable[[dict[str, Any], Counts], None]) -> ParseJob:
        """The run, planned: documents found, pages counted, the manifest read.

        Raises:
            SoonerError: no documents, no model, no drafter, or an output that can't be written.
        """
        from ..documents import PageRange, find_documents
        from ..tasks.parse import Delivery, ParseJob
        from ..tasks.parse.delivery import check_formats
        from ..tasks.parse.drafters import TIMEOUT, drafter_hash, guard, make_drafter
        from ..tasks.parse.identity import parser_name, settings_hash
        from ..tasks.parse.plan import Intake
        from ..tasks.parse.result import DRAFTED

        self._check()
        documents = self._apart(find_documents(self.inputs or []))
        pages = PageRange() if self.pages is None else PageRange.parse(self.pages)
        name = None if self.model is None else parser_name(self.model)
        intake = Intake(pages, self._resolution(name), self.password)
        timeout = TIMEOUT if self.settings.timeout is None else self.settings.timeout
        drafter = guard(make_drafter(self.drafter), self.drafter, timeout, self.workers)
        hashed = settings_hash(
            self.settings,
            name or DRAFTED,
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
            workers=self.workers,
            fresh=not self.resume,
            stop_on_error=self.on_error == "stop",
            compare=self.compare,
            drafts_only=self.model is None,
            told_of=self._foreign(name),
            on_page=on_page,
            debug=self.debug,
        )

    def _foreign(self, name: str | None) -> Callable[[Path], list[str]] | None:
        """Notes on documents that a miniature was not trained on."""
        from .. import miniatures
        from ..tasks.parse.identity import MINIATURE

        if MINIATURE not in miniatures.names():
            return None
        small = miniatures.find(MINIATURE)
        return small.foreign if name == str(small.target) else None

    def _resolution(self, model: str | None) -> Resolution:
        """As asked for; else the size of the pages that the model knows, if it knows one only."""
        from ..documents import Resolution
        from ..tasks.parse.forms import habits_of

        if self.dpi is None and self.longest is None:
            return Resolution() if model is None else Resolution(within=habits_of(model).size)
        return (
            Resolution(longest=self.longest)
            if self.dpi is None
            else Resolution(self.dpi, self.longest)
        )

    def _apart(self, documents: list[Document]) -> list[Document]:
        """Without the pictures of earlier results, if these lie within the inputs."""
        output = self.output.resolve()
        if not any(folder.resolve() in output.parents for folder in self.inputs or []):
            return documents
        return [one for one in documents if output not in one.path.resolve().parents]

    def _check(self) -> None:
        if self.model is None and self.compare:
            raise SoonerError("--compare is about a model's decoding; name one with --model")
        if self.model is None and self.drafter == "none":
            raise SoonerError("without a drafter and a model nobody reads; name one with --model")
        check_choice("on-error", self.on_error, ("skip", "stop"))
        if self.threads is not None:
            check_whole("threads", self.threads)

    def load(self, display: Display, beside: int = 0) -> PageParser | DraftParser:
        """The model, and its threads, see `Threads`.

        Without a model nothing is loaded, torch neither.

        Args:
            beside: processes that work on the CPU meanwhile.

        Raises:
            SoonerError: it can't be loaded, or does not read pages.
        """
        if self.model is None:
            from ..tasks.parse import DraftParser

            return DraftParser()
        from ..methods.threads import Threads
        from ..tasks.parse import PageParser, load_parser

        if not self.debug:
            options.hush()
        with display.job():
            display.stage("load")
            pair = load_parser(self.model, self.device, self.dtype, self.trust_remote_code)
            parser = PageParser(pair, self.settings)
        small = pair.miniature is not None
        Threads.plan(self.threads, is_miniature=small, beside=beside).apply()
        return parser


def inputs_of(given: list[Path] | None, sample: bool) -> list[Path]:
    """The files given, the bundled page, or both.

    Raises:
        SoonerError: neither.
    """
    from .. import miniatures

    page = miniatures.find("document").sample if sample else None
    found = [*(given or []), *([page] if page is not None else [])]
    if not found:
        raise SoonerError("nothing to parse; name a file or a folder, or use --sample")
    return found


def model_of(given: str | None, sample: bool) -> str | None:
    """The model given; the bundled page is for the bundled miniature."""
    from ..tasks.parse.identity import DEMO

    return DEMO if given is None and sample else given
