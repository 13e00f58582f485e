"""The runs of `sooner eval docs`: pages are parsed or given, then scored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sooner.cli.display import Display
from sooner.cli.parse import ParseOptions
from sooner.errors import SoonerError

if TYPE_CHECKING:
    from sooner.ray import RayJob
    from sooner.tasks.parse import ParseJob

    from ..evaluation.documents import Benchmark
    from ..evaluation.documents.predictions import Texts
    from ..evaluation.documents.speed import GroupSpeed


@dataclass(frozen=True)
class Scoring:
    """What is scored and where that goes; see the options."""

    folder: Path
    kind: str | None
    limit: int | None
    json: Path | None
    output: Path | None
    display: Display

    def folder_for_predictions(self) -> Path:
        """Where the model's pages go.

        Raises:
            SoonerError: nobody said so.
        """
        if self.output is None:
            raise SoonerError(
                "nothing to score; give -o FOLDER for what the model will write, or --predictions"
            )
        return self.output

    def score_predictions(self, folder: Path) -> None:
        """Score predictions that are there; with an output, write them for the official scorer.

        Raises:
            SoonerError: no benchmark, no predictions, or a library is missing.
        """
        from ..evaluation.documents import read_predictions, write_predictions

        benchmark = self._benchmark()
        texts = read_predictions(folder, benchmark)
        if self.output is not None:
            write_predictions(self.output, benchmark, texts)
        self._tell(benchmark, texts, {}, {"predictions": str(folder)})

    def parsed(self, options: ParseOptions) -> int:
        """Parse the pages, then score them.

        Returns:
            How many pages failed.

        Raises:
            SoonerError: no benchmark, or what the run raises.
        """
        from ..evaluation.documents import read_predictions, write_predictions
        from ..evaluation.documents.parsing import failures
        from ..evaluation.documents.speed import compared_lines, speeds

        benchmark = self._benchmark()
        job = self._run(options, benchmark)
        failed = failures(job, benchmark)
        texts: Texts = {}
        if len(failed) < len(benchmark.samples):
            texts = read_predictions(self.folder_for_predictions(), benchmark)
        texts = {name: text for name, text in texts.items() if name not in failed}
        write_predictions(self.folder_for_predictions(), benchmark, texts)
        speed: list[GroupSpeed] | None = None
        if options.compare:
            speed = speeds(compared_lines(job.delivery.lines, benchmark), benchmark)
        self._tell(benchmark, texts, failed, report(options), speed)
        return len(failed)

    def _run(self, request: ParseOptions, benchmark: Benchmark) -> ParseJob | RayJob:
        from sooner.cli.parse_display import PagesDisplay

        from ..evaluation.documents.parsing import predicting

        benchmark.check_sources()
        pages_display = PagesDisplay(self.display)
        first = replace(request, inputs=[str(benchmark.samples[0].source)])
        here = predicting(first.job(pages_display.page), benchmark)
        job: ParseJob | RayJob = here
        if request.ray:
            request = replace(request, inputs=[str(self.folder)])
            job = request.ray_job(pages_display.page, here)
        with self.display.job():
            request.run(job, self.display)
        for line in pages_display.summary(job.counts):
            self.display.line(line, "bold")
        return job

    def _benchmark(self) -> Benchmark:
        from ..evaluation.documents import load
        from ..evaluation.libraries import check

        check()
        return load(self.folder, self.kind).limited(self.limit)

    def _tell(
        self,
        benchmark: Benchmark,
        texts: Texts,
        failed: Mapping[str, str],
        settings: Mapping[str, Any],
        speed: Sequence[GroupSpeed] | None = None,
    ) -> None:
        from ..evaluation.documents import lines_of, score
        from ..evaluation.documents.files import write_text
        from ..evaluation.documents.speed import speed_lines

        with self.display.job():
            self.display.stage("score", len(benchmark.samples))
            result = score(
                texts, benchmark, failed=failed, settings=settings, on_page=self.display.advance
            )
        for line in lines_of(result):
            typer.echo(line)
        whole = result.to_json()
        if speed is not None:
            typer.echo("")
            for line in speed_lines(speed, len(benchmark.samples)):
                typer.echo(line)
            whole["speed"] = [asdict(group) for group in speed]
        if self.json is not None:
            text = json.dumps(whole, ensure_ascii=False, indent=1) + "\n"
            write_text(self.json, text)
            typer.echo(f"wrote {self.json}", err=True)


def report(options: ParseOptions) -> dict[str, Any]:
    """How pages were parsed, as plain data."""
    names = ("model", "drafter", "dpi", "longest", "device", "dtype")
    return {**{name: getattr(options, name) for name in names}, **asdict(options.settings)}
