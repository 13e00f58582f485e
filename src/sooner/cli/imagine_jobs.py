"""Runs one prompt or clip of the command line and writes its files, after Ctrl-C, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..checks import check_whole
from ..errors import SoonerError
from ..tasks.imagine.settings import ImagineSettings
from . import options
from .display import Display, unbroken
from .from_settings import Fields

if TYPE_CHECKING:
    from ..tasks.imagine.batch import DrawCallbacks
    from ..tasks.imagine.drawing_model import DrawingModel, Kind
    from ..tasks.imagine.job import ImagineResult


SECONDS = ("video", "vision", "prefill", "draft", "verify", "other", "pixels")


def summary_lines(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Returns `(line, style)` of a record's summary."""
    how = f"method: {record['method']}"
    names = ("coupling", "jacobi_window", "window")  # the last one in records of 0.1
    known = [str(record[name]) for name in names if record.get(name) is not None]
    how += f" ({', '.join(known)})" if known else ""
    text = f"mode: {record['mode']}, seed: {record['seed']}"
    if record["finish"] != "whole":
        return [(f"  {record['tokens']} codes, NFE {record['nfe']}, {how}, {text}", "")]
    pictures = f" ({record['count']} at once)" if record["count"] > 1 else ""
    seconds = record["seconds"]
    return [
        (
            f"  {record['tokens']} codes{pictures}, NFE {record['nfe']}, step compression "
            f"{record['step_compression']:.2f}x, {record['tokens_per_second']:.0f} codes/s, "
            f"{sum(seconds.values()):.2f} s",
            "",
        ),
        (f"  {how}, {text}", ""),
        *_comparison(record),
        (
            "  seconds: "
            + ", ".join(f"{name} {seconds[name]:.2f}" for name in SECONDS if name in seconds),
            "dim",
        ),
    ]


def _comparison(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Speed-up and parity, if plain decoding ran too."""
    if "plain" not in record:
        return []
    plain, parity = record["plain"], record["parity"]
    if parity is None:
        note = "other draws of the same distribution, so not the same one"
        note = note if record["mode"] == "exact" else "of another distribution: not exact"
        style = ""
    else:
        note, style = (
            f"parity: {parity['verdict']}",
            {"identical": "bold green"}.get(parity["verdict"], "bold red"),
        )
    if record["draw_speedup"] is None:
        return [(f"  {note} (code {parity['divergence']}); no speed-up is claimed", style)]
    return [
        (
            f"  speed-up: {record['draw_speedup']:.2f}x (plain: NFE {plain['nfe']}, "
            f"{sum(plain['seconds'].values()):.2f} s), {note}",
            style,
        )
    ]


DONE, BUG, INTERRUPTED = 0, 1, 130

SUFFIX = {"image": ".png", "video": ".mp4"}


@dataclass(frozen=True)
class Loading:
    """The model that draws, as it is asked for; see `sooner.tasks.imagine.load_drawing_model`."""

    model: options.Model = None
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Of a video model; vqgan.ckpt or movqgan_270M.ckpt of a Chameleon."
        ),
    ] = None
    layout: Annotated[
        str | None, typer.Option(metavar="NAME", help="Chameleon: chameleon, lumina, lumina2.")
    ] = None
    remote_code: Annotated[
        bool, typer.Option("--trust-code", help="Run a tokenizer's TorchScript.")
    ] = False
    device: options.Device = "auto"
    dtype: options.Dtype = "auto"
    threads: options.Threads = None

    def load(self, kind: Kind, debug: bool) -> DrawingModel:
        """Load it, without the libraries' own progress bars and warnings unless `debug`.

        Raises:
            SoonerError: as `load_drawing_model`.
        """
        values = asdict(self)
        return options.load_drawing_model(
            debug, kind=kind, remote_code=values.pop("remote_code"), **values
        )


@dataclass(frozen=True)
class ImagineRequest:
    """What one call has as options, without the prompt or clip."""

    settings: Annotated[ImagineSettings, Fields(short={"count": "-n"})] = field(
        default_factory=ImagineSettings
    )
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="A .png, an .mp4, or a folder for many."
        ),
    ] = None
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is there already.")
    ] = False
    singles: Annotated[
        bool, typer.Option("--singles", help="Beside the grid, each picture: out-1.png, ...")
    ] = False
    only_new: Annotated[
        bool, typer.Option("--only-new", help="Leave the given frames out of the clip.")
    ] = False
    mark: Annotated[
        bool, typer.Option("--mark", help="Draw an edge around frames that were drawn.")
    ] = False
    keep_partial: Annotated[
        bool, typer.Option("--keep-partial", help="After Ctrl-C, save unfinished pictures too.")
    ] = False
    preview_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A PNG of what is there, step by step.")
    ] = None
    preview_every: Annotated[int, typer.Option(metavar="N", help="Steps between them.")] = 8
    models: Loading = Loading()
    debug: options.Debug = False
    display: Display = field(default_factory=Display)

    def __post_init__(self) -> None:
        check_whole("preview-every", self.preview_every)


class Studio:
    """Runs the drawings of one call: holds the model, once loaded, and the progress display.

    Attributes:
        written: the files of what was made last.

    Raises:
        SoonerError: a preview folder that can't be written.
    """

    def __init__(self, request: ImagineRequest, kind: Kind) -> None:
        from ..tasks.imagine.writing import make_folder
        from .live import LivePreview

        self.request, self.kind, self.display = request, kind, request.display
        self.watch = LivePreview(
            self.display.err, self.display.quiet, request.preview_dir, request.preview_every
        )
        if request.preview_dir is not None:
            make_folder(request.preview_dir)
        self.written: list[Path] = []
        self._easel: DrawingModel | None = None

    @property
    def drawing_model(self) -> DrawingModel:
        """Returns the model, loaded on first use."""
        if self._easel is None:
            self.display.stage("load")
            self._easel = self.request.models.load(self.kind, self.request.debug)
        return self._easel

    @property
    def callbacks(self) -> DrawCallbacks:
        from ..tasks.imagine.batch import DrawCallbacks

        return DrawCallbacks(
            self.display.decoded, self._stage, self.watch.begin, self.watch.progress
        )

    def _stage(self, name: str) -> None:
        if self.watch.shows(name):
            self.display.end_text()  # its picture is the progress
        else:
            self.display.stage(name)
        self.watch.stage(name)

    def make(
        self, draw: Callable[[DrawingModel, DrawCallbacks], ImagineResult], path: Path
    ) -> tuple[int, ImagineResult | None]:
        """Draw and save; returns the exit code and what was saved.

        Ctrl-C leaves what is finished, and with `keep_partial` the rest too.
        """
        from ..tasks.imagine.job import Stopped

        try:
            with self.display.job():
                made = draw(self.drawing_model, self.callbacks)
        except Stopped as stop:
            self.watch.end()
            with unbroken():
                return INTERRUPTED, self._interrupted(stop.made, path)
        finally:
            self.watch.end()
        with unbroken():
            self.save(made, path)
        parity = made.record.get("parity")
        return (BUG if parity and parity["verdict"] == "bug" else DONE), made

    def _interrupted(self, made: ImagineResult, path: Path) -> ImagineResult | None:
        whole, of = sum(made.finished), len(made.finished)
        thing = "pictures" if self.kind == "image" else "clips"
        text = f"interrupted: {whole} of {of} {thing} finished"
        keep = [self.request.keep_partial or done for done in made.finished]
        if any(keep):
            made = _only(made, keep)
            self.save(made, path)
            text += f"; '{path}' holds {len(made.finished)}"
        elif whole < of:
            text += "; --keep-partial saves what there is"
        self.display.error(text)
        return made if any(keep) else None

    def save(self, made: ImagineResult, path: Path) -> None:
        """Write what was made, print where, and sum it up."""
        self.written = self._write(made, path)
        for item in self.written:
            typer.echo(str(item))
        for note in made.record.get("notes", []):
            self.display.line(f"  {note}", "yellow")
        for text, style in summary_lines(made.record):
            self.display.line(text, style)

    def _write(self, made: ImagineResult, path: Path) -> list[Path]:
        from ..tasks.imagine import writing

        request = self.request
        if made.fps is None:
            pictures = made.pixels[:, 0]
            writing.write_png(path, writing.grid(pictures), made.record)
            names = numbered(path, len(pictures)) if request.singles else []
            for index, (name, picture) in enumerate(zip(names, pictures, strict=False), start=1):
                writing.write_png(name, picture, {**made.record, "picture": index})
            return [path, *names]
        names = [path] if len(made.pixels) == 1 else numbered(path, len(made.pixels))
        for index, (name, clip) in enumerate(zip(names, made.pixels, strict=True), start=1):
            frames = writing.mark_drawn(clip, made.prefix_frames) if request.mark else clip
            frames = frames[made.prefix_frames :] if request.only_new else frames
            writing.write_mp4(name, frames, made.fps, {**made.record, "picture": index})
        return names


def _only(made: ImagineResult, keep: list[bool]) -> ImagineResult:
    """Returns the same request with some of its pictures."""
    from dataclasses import replace

    return replace(
        made, pixels=made.pixels[keep],
        finished=[done for done, flag in zip(made.finished, keep, strict=True) if flag],
    )  # fmt: skip


def numbered(path: Path, count: int) -> list[Path]:
    """Returns the paths `out-1.png`, `out-2.png`, ..."""
    return [path.with_name(f"{path.stem}-{index}{path.suffix}") for index in range(1, count + 1)]


def draw_prompt(request: ImagineRequest, prompt: str) -> int:
    """Runs `sooner imagine PROMPT`; returns the exit code."""
    if not prompt.strip():
        raise SoonerError("the prompt is empty; say what is to be drawn")
    if request.settings.given is not None or request.settings.start:
        raise SoonerError("--given and --start are about clips; use them with --continue")
    from ..tasks.imagine.job import imagine

    path = _target(request, "image")
    studio = Studio(request, "image")
    code, _ = studio.make(
        lambda drawing_model, callbacks: imagine(
            prompt, drawing_model, request.settings, callbacks
        ),
        path,
    )
    return code


def draw_clip(request: ImagineRequest, clip: Path) -> int:
    """Runs `sooner imagine --continue CLIP`; returns the exit code."""
    path = _target(request, "video")
    from ..tasks.imagine.job import continue_clip
    from ..tasks.video import probe

    probe(clip)  # models load slowly, so the file is looked into first
    studio = Studio(request, "video")
    code, _ = studio.make(
        lambda drawing_model, callbacks: continue_clip(
            clip, drawing_model, request.settings, callbacks
        ),
        path,
    )
    return code


def _target(request: ImagineRequest, kind: Kind) -> Path:
    """Returns where the result goes, checked before any work.

    Raises:
        SoonerError: it could not be written, or is there already.
    """
    from ..tasks.imagine.writing import check_target

    path = request.output or Path(f"imagine-{request.settings.seed}{SUFFIX[kind]}")
    count = request.settings.count
    many = request.singles if kind == "image" else count > 1
    for candidate in [path, *(numbered(path, count) if many else [])]:
        check_target(candidate, SUFFIX[kind], request.overwrite)
    return path
