"""`sooner imagine`: pictures from prompts, and clips continued, with live progress."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from ..checks import check_fields, option
from ..errors import SoonerError
from ..interrupts import unbroken
from ..io import check_writable
from ..tasks.imagine.settings import ImagineSettings, fresh_seed
from . import BAD, BUG, DONE, INTERRUPTED, options
from .display import Display, Line, Tally, comparison, figures
from .from_settings import from_settings

if TYPE_CHECKING:
    from ..tasks.imagine.batch import DrawCallbacks
    from ..tasks.imagine.drawing_model import DrawingModel, Kind
    from ..tasks.imagine.job import ImagineResult

    Draw = Callable[[DrawingModel, ImagineSettings, DrawCallbacks], ImagineResult]

SUFFIX = {"image": ".png", "video": ".mp4"}
RECORDS, SAMPLE = "records.jsonl", "sample"
DRAWS = ("draw", "compare")


@dataclass(frozen=True, kw_only=True)
class Loading(options.SingleModel):
    """The model that draws.

    Attributes:
        tokenizer: folder of a video model's; vqgan.ckpt of a Chameleon.
        layout: how a Chameleon writes pictures: chameleon or lumina.
        trust_remote_code: run a tokenizer's TorchScript.
    """

    tokenizer: str | None = option(None, metavar="DIR")
    layout: str | None = option(None, metavar="NAME")
    trust_remote_code: bool = False


@dataclass(frozen=True, kw_only=True)
class ImagineJob:
    """What is drawn, how and by which model.

    Attributes:
        prompt: what is to be drawn.
        clip: continue this clip instead, a folder of clips, or 'sample', the bundled one.
        prompts: draw every prompt of a text file, a line each, into the folder -o; a rerun goes on.
        sample: draw the bundled prompt.
        output: a .png, an .mp4 (several are out-1.png, ...), or a folder for many prompts.
        overwrite: replace what is there already.
        only_new: leave the given frames out of the clip.
        limit: at most so many prompts or clips.
    """

    prompt: str | None = option(None, metavar="[PROMPT]", positional=True)
    clip: str | None = option(None, metavar="CLIP", names=("--continue",))
    prompts: Path | None = option(None, metavar="FILE")
    sample: bool = False
    settings: ImagineSettings = field(default_factory=ImagineSettings)
    output: Path | None = option(None, metavar="FILE", names=("-o", "--output"))
    overwrite: bool = False
    only_new: bool = False
    models: Loading = field(default_factory=Loading)
    limit: int | None = option(None, 1)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def subject(self) -> str:
        """Returns the one option that says what is drawn.

        Raises:
            SoonerError: there is none, or more than one.
        """
        values = {
            "PROMPT": self.prompt,
            "--continue": self.clip,
            "--prompts": self.prompts,
            "--sample": self.sample or None,
        }
        names = [name for name, value in values.items() if value is not None]
        if len(names) != 1:
            raise SoonerError(
                f"{' and '.join(names) or 'no prompt'} given; write one prompt, or use one of "
                "--continue CLIP, --prompts FILE and --sample"
            )
        return names[0]

    def target(self, kind: Kind, seed: int | None) -> Path:
        """Returns where a single result goes, checked before any work.

        Raises:
            SoonerError: it could not be written, or is there already.
        """
        from ..tasks.imagine.files import check_target

        path = self.output or Path(f"imagine-{seed}{SUFFIX[kind]}")
        for candidate in {path, *numbered(path, self.settings.count)}:
            check_target(candidate, SUFFIX[kind], self.overwrite)
        return path


@from_settings
def imagine(*, request: ImagineJob, display: Display) -> None:
    """Draw pictures, or continue a clip, in fewer steps.

    The file tells its prompt, seed, model, method, steps and mode; the same command with the same
    --seed draws the same pixels.
    """
    from .. import miniatures
    from ..tasks.imagine.job import continue_clip
    from ..tasks.imagine.job import imagine as draw
    from ..tasks.video import probe

    subject = request.subject
    is_clip = subject == "--continue"
    studio = Studio(request, "video" if is_clip else "image", display)
    if subject == "--prompts" or (is_clip and Path(request.clip or "").is_dir()):
        tasks = _clip_tasks(request) if is_clip else _prompt_tasks(request)
        raise typer.Exit(studio.make_all(list(tasks)))
    settings = request.settings
    if settings.seed is None:  # so that a name can be made of it before anything is loaded
        settings = replace(settings, seed=fresh_seed())
    path = request.target(studio.kind, settings.seed)
    if is_clip:
        clip = Path(request.clip or "")
        if request.clip == SAMPLE and not clip.exists():
            clip = miniatures.sample_of("motion")
        probe(clip)  # models load slowly, so the file is looked into first
        call: Draw = partial(continue_clip, clip)
    else:
        prompt = miniatures.find("image").prompt if request.sample else request.prompt or ""
        if not prompt.strip():
            raise SoonerError("the prompt is empty; say what is to be drawn")
        if settings.given is not None or settings.start:
            raise SoonerError("--given and --start are about clips; use them with --continue")
        call = partial(draw, prompt)
    try:
        record, _ = studio.make(call, settings, path)
    except KeyboardInterrupt:
        display.error("interrupted: nothing is saved before all of it is drawn")
        raise typer.Exit(INTERRUPTED) from None
    if is_bug(record):
        raise typer.Exit(BUG)


def is_bug(record: dict[str, Any]) -> bool:
    """Returns whether an exact method drew other codes than plain decoding."""
    parity = record.get("parity")
    return parity is not None and parity["verdict"] == "bug"


class ImagineTask(NamedTuple):
    """One prompt or clip of many that a command draws.

    Attributes:
        id: its name in records and headings.
        content: hash of the prompt or clip.
        draw: draws it.
    """

    id: str
    content: str
    draw: Draw


def _prompt_tasks(request: ImagineJob) -> Iterator[ImagineTask]:
    from ..tasks.identity import read_prompts
    from ..tasks.imagine.job import imagine as draw

    path = request.prompts or Path()
    for number, line in read_prompts(path)[: request.limit]:
        text = line.strip()
        hashed = hashlib.sha256(text.encode()).hexdigest()
        yield ImagineTask(f"{path.name}/{number}", hashed, partial(draw, text))


def _clip_tasks(request: ImagineJob) -> Iterator[ImagineTask]:
    from ..tasks.identity import sha256
    from ..tasks.imagine.files import load_clips
    from ..tasks.imagine.job import continue_clip

    for path in load_clips(Path(request.clip or ""), request.limit, apart=request.output):
        yield ImagineTask(path.stem, sha256(path), partial(continue_clip, path))


class Studio:
    """Draws what one call asks for, with a model that is loaded on first use."""

    def __init__(self, request: ImagineJob, kind: Kind, display: Display) -> None:
        self.request, self.kind, self.display = request, kind, display

    @cached_property
    def drawing_model(self) -> DrawingModel:
        """Returns the model, loaded on first use."""
        from ..tasks.imagine.loading import load_drawing_model

        with self.display.loading():
            return load_drawing_model(**vars(self.request.models), kind=self.kind)

    def make(
        self, draw: Draw, settings: ImagineSettings, path: Path
    ) -> tuple[dict[str, Any], list[Path]]:
        """Draw and save; returns the record and the files."""
        from ..tasks.imagine.batch import DrawCallbacks

        display, codes = self.display, [0]
        callbacks = DrawCallbacks(
            on_decode=display.decoded,
            on_stage=lambda name: display.stage(name, codes[-1] if name in DRAWS else None),
            on_canvas=lambda canvas: codes.append(canvas.grid.left * settings.count),
            on_progress=lambda progress: display.advance(progress.tokens, progress.total),
        )
        with display.job():
            made = draw(self.drawing_model, settings, callbacks)
        with unbroken():
            return made.record, self.save(made, path)

    def save(self, made: ImagineResult, path: Path) -> list[Path]:
        """Write what was made, print where, and sum it up; returns the files."""
        from ..tasks.imagine.files import write_mp4, write_png

        files = numbered(path, len(made.pixels))
        begin = made.prefix_frames if self.request.only_new else 0
        for index, (name, frames) in enumerate(zip(files, made.pixels, strict=True), start=1):
            record = {**made.record, "picture": index}
            if made.fps is None:
                write_png(name, frames[0], record)
            else:
                write_mp4(name, frames[begin:], made.fps, record)
            typer.echo(str(name))
        self.display.notes(made.record.get("notes", []))
        self.display.lines(summary(made.record))
        return files

    def make_all(self, tasks: list[ImagineTask]) -> int:
        """Draw many tasks into a folder, recorded and resumable; an error in one does not stop the
        others. Returns the exit code.

        Raises:
            SoonerError: no folder to write to; or the model can't be loaded, since no other task
                would fare better.
        """
        from ..tasks.identity import Records, model_names, settings_hash
        from ..tasks.imagine.loading import MINIATURES, tokenizer_of

        folder, models = self.request.output, self.request.models
        if folder is None:
            raise SoonerError("many pictures need a folder; give one with -o")
        check_writable(folder / RECORDS, "-o")
        records = Records(folder / RECORDS, self.request.overwrite)
        name, _ = model_names(models.model, None, MINIATURES[self.kind])
        hashed, code = settings_hash(
            self.request.settings, name, tokenizer_of(name, models.tokenizer), models.dtype,
            models.layout, self.request.only_new,
        ), DONE  # fmt: skip
        tally = Tally(self.display, "drawn")
        tally.total = len(tasks)
        try:
            for number, task in enumerate(tasks, start=1):
                self.display.line(f"[{number}/{len(tasks)}] {task.id}", "bold")
                names = (records.done(task.content, hashed) or {}).get("output", [])
                if names and all((folder / name).is_file() for name in names):
                    tally.skip(f": {', '.join(names)}")
                    continue
                _ = self.drawing_model
                with tally.attempt(task.id):
                    plain = re.sub(r"[^\w.-]+", "-", task.id.split("/")[-1]).strip("-.")[:40]
                    name = f"{number:05d}-{plain}-{task.content[:6]}{hashed[:6]}{SUFFIX[self.kind]}"
                    record, files = self.make(task.draw, self.request.settings, folder / name)
                    code = BUG if is_bug(record) else code
                    entry = {"id": task.id, "input_hash": task.content, "settings_hash": hashed}
                    records.add({**record, **entry, "output": [file.name for file in files]})
                    tally.done += 1
        except KeyboardInterrupt:
            self.display.error(f"interrupted: {tally}; they are in '{folder}'")
            return INTERRUPTED
        self.display.line(str(tally), "bold")
        return BAD if tally.failed else code


def numbered(path: Path, count: int) -> list[Path]:
    """Returns the path, or for several things `out-1.png`, `out-2.png`, ..."""
    if count == 1:
        return [path]
    return [path.with_name(f"{path.stem}-{index}{path.suffix}") for index in range(1, count + 1)]


def summary(record: dict[str, Any]) -> Iterator[Line]:
    """Yields what a record says about speed and exactness."""
    yield figures(record, "tokens", "count", "nfe", "step_compression", "tokens_per_second"), ""
    yield figures(record, "method", "coupling", "jacobi_window", "mode", "seed"), ""
    if "plain" in record:
        yield comparison(record)
    yield figures(record, "seconds"), "dim"
