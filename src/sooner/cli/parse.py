"""`sooner parse`: documents to Markdown, drafted by text layer or OCR, verified by a model if one
is named, resumable."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..checks import REQUIRED, option
from ..errors import SoonerError
from ..tasks.parse.settings import ParseSettings, parser_name
from ..tasks.settings import parse_prefill
from . import BAD, INTERRUPTED, options
from .display import Display
from .from_settings import Fields, from_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..documents import Document, Resolution
    from ..ray import RayJob
    from ..tasks.parse import ParseJob
    from ..tasks.parse.result import Counts


@dataclass(frozen=True, kw_only=True)
class ParseOptions(options.SingleModel):
    """Holds the options of a run of `sooner parse`. Without a model, drafts are the result.

    Attributes:
        inputs: PDFs, pictures, folders of them, patterns, or s3://BUCKET/...
        output: mirrors the inputs' tree; a folder, or s3://BUCKET/...
        pages: pages of each document, from 1; 10- is open.
        model: model that verifies the drafts; without it the drafts are the result, as DRAFT.
            'miniature' is the bundled demo, which reads its own made-up pages alone.
        trust_remote_code: run the Python files of a checkpoint that transformers has no class for.
        drafter: what drafts: auto (a PDF's own text where it is good, else OCR), ocr, text-layer,
            saved:FILE (PP-StructureV3, MinerU, docling), text:FILE, or none.
        language: what OCR reads, by rapidocr's names: en, german, japan, korean, cyrillic, arabic,
            ...; by default Chinese, Japanese and Latin script.
        ocr_model_dir: recognition models of languages that rapidocr's wheel has none for.
        formats: files of each document, md and json of each page, too.
        resume: skip pages of the same content and settings, or not.
        on_error: what a page that fails does.
        workers: drafter processes that work ahead, on as many pages; 0 drafts each page in turn.
        pages_in_flight: pages that are decoded at once, in shared forwards; 1 on CPUs, 16 on GPUs.
        shard: the I-th of N parts of the documents, by their places.
        dpi: resolution of the pages' pictures: 200, or the model's own size.
        longest: pixels of their longer side, instead of `dpi`.
        password: of encrypted PDFs.
        figures: regions that are cut out of their pages as PNG files, and shown where they stand.
        furniture: page headers and footers in documents' Markdown and HTML.
        compare: decode each page plainly too: speed-up and parity.
        ray: on Ray; pip install 'sooner[ray]'.
        ray_address: of a cluster, HOST:PORT, or auto; by default `ray` starts one here.
        actors: with `ray`, parsers that each load the model: by default one a GPU, or one a machine
            where there is none.
        in_flight: with `ray`, pages at once in each.
        debug: show tracebacks and decisions.
    """

    output: str = option(REQUIRED, metavar="FOLDER", names=("-o", "--output"))
    inputs: list[str] | None = option(None, metavar="INPUT...", positional=True)
    pages: str | None = option(None, metavar="1-4,7")
    trust_remote_code: bool = False
    drafter: str = option("auto", metavar="NAME")
    language: str | None = option(None, metavar="NAME")
    ocr_model_dir: Path | None = option(None, metavar="FOLDER")
    settings: Annotated[ParseSettings, Fields(without=("repetition",))] = field(
        default_factory=ParseSettings
    )
    formats: str = option(
        "md,json", metavar="md,json,html,docling", names=("--format", "--formats")
    )
    resume: bool = option(True, names=("--resume/--fresh",))
    on_error: str = option("skip", known=("skip", "stop"), metavar="skip|stop")
    workers: int = option(1, 0)
    pages_in_flight: int | None = option(None, 1)
    shard: str | None = option(None, metavar="I/N")
    dpi: float | None = option(None, metavar="N")
    longest: int | None = None
    password: str | None = None
    figures: str = option("", metavar="picture,table,formula")
    furniture: bool = True
    compare: bool = False
    ray: bool = False
    ray_address: str | None = option(None, metavar="ADDRESS")
    actors: int | None = option(None, 1)
    in_flight: int | None = option(None, 1)
    debug: bool = False

    def job(self, on_page: Callable[[dict[str, Any], Counts], None]) -> ParseJob:
        """Returns the run, planned: documents are listed, pages counted, and the manifest is read.

        Raises:
            SoonerError: no documents, no model, no drafter, or an output that can't be written.
        """
        from ..documents import PageRange, find_documents
        from ..tasks.parse import Delivery, ParseJob
        from ..tasks.parse.drafters import TIMEOUT, drafter_hash, guard, make_drafter
        from ..tasks.parse.formats import check_formats
        from ..tasks.parse.formats.figures import check_figures
        from ..tasks.parse.output import Intake, ParseOutput
        from ..tasks.parse.result import DRAFTED

        self._check()
        documents = self._apart(find_documents(self.inputs or []))
        pages = PageRange() if self.pages is None else PageRange.parse(self.pages)
        name = None if self.model is None else parser_name(self.model)
        intake = Intake(pages, self._resolution(name), self.password)
        timeout = TIMEOUT if self.settings.timeout is None else self.settings.timeout
        made = make_drafter(self.drafter, self.language, self.ocr_model_dir)
        drafter = guard(made, self.drafter, timeout, self.workers)
        drafted = drafter_hash(self.drafter, self.language, self.ocr_model_dir)
        hashed = self.settings.digest(name or DRAFTED, self.dtype, drafted, intake.resolution)
        delivery = Delivery(
            self.output, check_formats(self.formats), check_figures(self.figures), self.furniture
        )
        output = ParseOutput(
            delivery, hashed, intake, fresh=not self.resume, is_draft=self.model is None,
            debug=self.debug,
        )  # fmt: skip
        return ParseJob(
            documents=documents, output=output, drafter=drafter, workers=self.workers,
            stop_on_error=self.on_error == "stop", on_page=on_page, shard=self.shard,
        )  # fmt: skip

    def ray_job(
        self, on_page: Callable[[dict[str, Any], Counts], None], job: ParseJob | None = None
    ) -> RayJob:
        """Returns the run on Ray, by all machines of a cluster.

        Args:
            job: the run in one process, if its documents or files are others than those of the
                options.

        Raises:
            SoonerError: ray is not installed; an option that is for one process; else as `job`.
        """
        from ..ray import RayJob
        from ..ray.cluster import LOCAL
        from ..ray.parser import IN_FLIGHT
        from ..storage import is_url
        from ..tasks.parse.drafters import TIMEOUT

        def from_root(place: str) -> str:  # so that every machine means the same by it
            return place if is_url(place) else os.path.abspath(place)

        if self.compare:
            raise SoonerError("--compare times one process on one machine; leave --ray out")
        job = job or self.job(on_page)
        delivery, (kind, colon, path) = job.output.delivery, self.drafter.partition(":")
        delivery = replace(delivery, folder=from_root(str(delivery.folder)))
        settings, prefill = self.settings, self.settings.prefill
        if prefill is not None and parse_prefill(prefill).file is not None:
            settings = replace(settings, prefill=os.path.abspath(prefill))
        parser: dict[str, Any] = {
            "settings": settings,
            "drafter": f"{kind}:{from_root(path)}" if colon else kind,
            "drafter_options": {
                "language": self.language,
                "ocr_models": self.ocr_model_dir and os.path.abspath(self.ocr_model_dir),
            },
            "timeout": self.settings.timeout or TIMEOUT,
        }
        if self.model is not None:
            parser["model"] = options.from_root(self.model)
            for name in ("device", "dtype", "trust_remote_code", "threads"):
                parser[name] = getattr(self, name)
        return RayJob(
            documents=[
                replace(item, path=Path(from_root(str(item.path)))) if item.url is None else item
                for item in job.documents
            ],
            output=replace(job.output, delivery=delivery), parser=parser, shard=job.shard,
            inputs=[from_root(item) for item in self.inputs or []], parsers=self.actors,
            address=self.ray_address or LOCAL, pages_in_flight=self.in_flight or IN_FLIGHT,
            stop_on_error=job.stop_on_error, on_page=on_page, debug=self.debug,
        )  # fmt: skip

    def run(self, job: ParseJob | RayJob, display: Display) -> None:
        """Does what is to be done; a drafter's process ends with it."""
        from ..tasks.parse import ParseJob
        from ..tasks.parse.drafters import processes_of

        if not isinstance(job, ParseJob):
            job.run()
            return
        try:
            job.run(lambda: self.load(display, processes_of(job.drafter)))
        finally:
            getattr(job.drafter, "close", lambda: None)()

    def _resolution(self, model: str | None) -> Resolution:
        """Returns what the options say; else the size of pages that the model knows best."""
        from ..documents import Resolution
        from ..tasks.parse.families import family_of, type_of

        if self.dpi is not None:
            return Resolution(self.dpi, self.longest)
        if self.longest is not None or model is None:
            return Resolution(longest=self.longest)
        family = family_of(model, type_of(model), self.settings.family)
        if family.size is not None:
            return Resolution(within=family.size)
        return Resolution(longest=family.longest)

    def _apart(self, documents: list[Document]) -> list[Document]:
        """Returns the documents without the pictures of earlier results among the inputs."""
        from ..storage import is_url

        if is_url(self.output):
            begins = self.output.rstrip("/") + "/"
            return [item for item in documents if not (item.url or "").startswith(begins)]
        output = Path(self.output).resolve()
        folders = [Path(item).resolve() for item in self.inputs or [] if not is_url(item)]
        if not any(folder in output.parents for folder in folders):
            return documents
        return [item for item in documents if item.url or output not in item.path.resolve().parents]

    def _check(self) -> None:
        if self.model is None and self.compare:
            raise SoonerError("--compare is about a model's decoding; name one with --model")
        if self.model is None and self.drafter == "none":
            raise SoonerError("without a drafter and a model nobody reads; name one with --model")
        if self.compare and (self.pages_in_flight or 1) > 1:
            raise SoonerError(
                "--compare times each page with nothing beside it; leave --pages-in-flight out"
            )
        if not self.ray and (self.ray_address or self.actors or self.in_flight):
            raise SoonerError(
                "--ray-address, --actors and --in-flight are of --ray; add it, or leave them out"
            )

    def load(self, display: Display, processes: int = 0) -> Any:
        """Returns the model with its threads set, see `Threads`.

        Without a model nothing is loaded, torch neither.

        Args:
            processes: processes that work on the CPU meanwhile.

        Raises:
            SoonerError: it can't be loaded, or does not read pages.
        """
        if self.model is None:
            from ..tasks.parse import DraftParser

            return DraftParser()
        from ..methods.threads import Threads
        from ..tasks.parse import load_parser
        from ..tasks.parse.concurrent import page_parser

        with display.loading():
            pair = load_parser(self.model, self.device, self.dtype, self.trust_remote_code)
            several = 1 if self.compare else self.pages_in_flight
            parser: Any = page_parser(pair, self.settings, several)
            if self.compare:
                from ..tasks.parse.comparison import ComparedParser

                parser = ComparedParser(parser)
        small = pair.miniature is not None
        Threads.plan(self.threads, is_miniature=small, processes=processes).apply()
        return parser


@from_settings
def parse(
    *,
    request: ParseOptions,
    sample: Annotated[
        bool, typer.Option("--sample", help="The bundled page, whose Markdown is printed.")
    ] = False,
    display: Display,
) -> None:
    """Parse documents into Markdown and regions, page by page, as the model alone would.

    Without --model the result is the draft: a PDF's own text, or OCR's. With it the drafter reads
    the next page while the model confirms this one. Finished pages are kept
    whatever happens, and the same command goes on behind them. A page that fails does not stop
    the others; the exit code tells.
    """
    from ..interrupts import ended_as_interrupted
    from .parse_display import PagesDisplay

    if sample:  # which is for the bundled miniature
        from ..miniatures import sample_of
        from ..tasks.parse.settings import DEMO

        inputs = [*(request.inputs or []), str(sample_of("document"))]
        request = replace(request, inputs=inputs, model=request.model or DEMO)
    if not request.inputs:
        raise SoonerError("nothing to parse; name a file or a folder, or use --sample")
    pages_display = PagesDisplay(display)
    if not request.ray:
        job: ParseJob | RayJob = request.job(pages_display.page)
    else:
        job = request.ray_job(pages_display.page)
    pages_display.texts = job.store if sample else None
    try:
        with display.job(), ended_as_interrupted():  # no page is blamed for the end
            request.run(job, display)
    except KeyboardInterrupt:
        display.error(
            f"interrupted: {pages_display.counts(job.counts)}; the same command goes on there"
        )
        raise typer.Exit(INTERRUPTED) from None
    counts = job.counts
    for line in pages_display.summary(counts):
        display.line(line, "bold")
    if request.shard and not (counts.done or counts.failed or counts.before or counts.aside):
        display.line(f"shard {request.shard} has nothing to do: documents go by their places")
    if counts.failed:
        raise typer.Exit(BAD)
