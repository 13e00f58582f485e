"""Many prompts or clips from the command line into one folder, recorded, resumable."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SoonerError
from .imagine_jobs import DONE, INTERRUPTED, SUFFIX, ImagineRequest, Studio

if TYPE_CHECKING:
    from ..tasks.imagine.batch import DrawCallbacks
    from ..tasks.imagine.drawing_model import DrawingModel, Kind
    from ..tasks.imagine.job import ImagineResult
    from ..tasks.imagine.prompts import ImagePrompt
    from ..tasks.imagine.settings import ImagineSettings

BAD = 2
RECORDS = "records.jsonl"


@dataclass(frozen=True)
class ImagineTask:
    """One prompt or clip of many that a command draws.

    Attributes:
        id: its name in records and headings.
        content: hash of what is asked.
        settings: how.
        draw: draws it.
    """

    id: str
    content: str
    settings: ImagineSettings
    draw: Callable[[DrawingModel, DrawCallbacks], ImagineResult]

    def name(self, number: int, hashed: str) -> str:
        """Returns a file name that is unique to content and settings."""
        plain = re.sub(r"[^\w.-]+", "-", self.id.split("/")[-1]).strip("-.")[:40]
        return f"{number:05d}-{plain}-{self.content[:6]}{hashed[:6]}"


def draw_prompts(request: ImagineRequest, name: str, source: str | None, limit: int | None) -> int:
    """Runs `sooner imagine --prompts NAME -o FOLDER`; returns the exit code."""
    from ..tasks.imagine.job import imagine
    from ..tasks.imagine.prompts import load_prompts

    settings = request.settings

    def task(prompt: ImagePrompt) -> ImagineTask:
        hashed = hashlib.sha256(prompt.text.encode()).hexdigest()
        return ImagineTask(
            prompt.id,
            hashed,
            settings,
            lambda drawing_model, callbacks: imagine(
                prompt.text, drawing_model, settings, callbacks
            ),
        )

    tasks = [task(item) for item in load_prompts(name, source, limit)]
    return ImagineBatch(request, "image", tasks).run()


def draw_clips(request: ImagineRequest, folder: Path, limit: int | None) -> int:
    """Runs `sooner imagine --continue FOLDER -o FOLDER`; returns the exit code."""
    from ..tasks.imagine.prompts import load_clips

    clips = load_clips(folder, limit, apart=request.output)
    tasks = [_clip_task(request.settings, clip) for clip in clips]
    return ImagineBatch(request, "video", tasks).run()


def _clip_task(settings: ImagineSettings, clip: Any) -> ImagineTask:
    from ..tasks.identity import sha256
    from ..tasks.imagine.job import continue_clip
    from ..tasks.video import probe

    if clip.seconds:
        settings = replace(settings, start=round(clip.seconds * probe(clip.video).fps))
    return ImagineTask(
        clip.id,
        sha256(clip.video),
        settings,
        lambda drawing_model, callbacks: continue_clip(
            clip.video, drawing_model, settings, callbacks
        ),
    )


class ImagineBatch:
    """All tasks of one call: the model is loaded when the first one needs it.

    Raises:
        SoonerError: no folder to write to.
    """

    def __init__(self, request: ImagineRequest, kind: Kind, tasks: list[ImagineTask]) -> None:
        from ..tasks.imagine.loading import find_model
        from ..tasks.imagine.writing import make_folder
        from ..tasks.records import Records

        if request.output is None:
            raise SoonerError("many pictures need a folder; give one with -o")
        make_folder(request.output)
        self.folder, self.kind, self.tasks = request.output, kind, tasks
        self.records = Records(self.folder / RECORDS, request.overwrite)
        self.studio, self.display = Studio(request, kind), request.display
        self.debug, self.dtype = request.debug, request.models.dtype
        self.model = find_model(request.models.model, kind)
        self.done = self.skipped = self.failed = 0
        self.worst = DONE

    def run(self) -> int:
        """Returns every task; an error in one does not stop the others. Returns the exit code."""
        try:
            for number, task in enumerate(self.tasks, start=1):
                self.display.line(f"[{number}/{len(self.tasks)}] {task.id}", "bold")
                if self._attempt(task, number) == INTERRUPTED:
                    return self._interrupted()
        except KeyboardInterrupt:
            return self._interrupted()
        self.display.line(self._counts(), "bold")
        return BAD if self.failed else self.worst

    def _attempt(self, task: ImagineTask, number: int) -> int:
        from ..tasks.imagine.job import settings_hash

        hashed = settings_hash(task.settings, self.model, self.dtype)
        if self._is_done(task, hashed):
            return DONE
        _ = self.studio.drawing_model  # without a model no task would fare better
        try:
            return self._draw(task, number, hashed)
        except SoonerError as error:
            self._fail(str(error))
        except BrokenPipeError:
            raise  # nobody reads any more
        except Exception as error:
            if self.debug:
                raise
            text = " ".join(str(error).split())
            self._fail(f"{task.id}: {type(error).__name__}: {text} (--debug shows where)")
        return BAD

    def _is_done(self, task: ImagineTask, hashed: str) -> bool:
        """Returns whether the folder has this content with these settings already."""
        record = self.records.done(task.content, hashed)
        names = record.get("output", []) if record is not None else []
        if not names or not all((self.folder / name).is_file() for name in names):
            return False
        self.skipped += 1
        self.display.line(f"  done before: {', '.join(names)}; --overwrite redoes it")
        return True

    def _draw(self, task: ImagineTask, number: int, hashed: str) -> int:
        path = self.folder / (task.name(number, hashed) + SUFFIX[self.kind])
        code, made = self.studio.make(task.draw, path)
        if code == INTERRUPTED or made is None:
            return INTERRUPTED
        self.worst = max(self.worst, code)
        names = [file.name for file in self.studio.written]
        entry = {"id": task.id, "input_hash": task.content, "settings_hash": hashed}
        self.records.add({**made.record, **entry, "output": names})
        self.done += 1
        return code

    def _fail(self, line: str) -> None:
        self.failed += 1
        self.display.error(line)

    def _counts(self) -> str:
        text = f"{self.done} of {len(self.tasks)} drawn"
        text += f", {self.skipped} done before" if self.skipped else ""
        return text + (f", {self.failed} failed" if self.failed else "")

    def _interrupted(self) -> int:
        self.display.error(f"interrupted: {self._counts()}; they are in '{self.folder}'")
        return INTERRUPTED
