"""The whole of `sooner bench parallel`: run by run, kept as it goes, and the result made of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sooner.provenance import provenance
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.threads import plan_threads

from ..clips import Clips, from_dataset, rendered
from ..result_file import write_result
from .book import Book, book_path
from .contenders import ParallelContender, contenders
from .goals import goals
from .records import COUNTS
from .running import Runner
from .settings import ParallelSettings
from .summary import summarise

Progress = Callable[[str], None]


def run(
    settings: ParallelSettings, json_file: Path | None = None, progress: Progress = print
) -> dict[str, Any]:
    """Measure and return the result object.

    Args:
        settings: what is measured.
        json_file: where the result is written, first after the first clip. Beside it every run is
            noted as it ends, and a study that was interrupted goes on behind the last one.
        progress: told what runs.

    Returns:
        `arms`, `sweep`, `goals`, `complete`, `provenance`.

    Raises:
        SoonerError: no draft for these models, or runs of another study beside `json_file`.
    """
    progress("loading models")
    pair = load_pair(settings.model, settings.draft, device=settings.device, dtype=settings.dtype)
    plan_threads(pair, settings.threads, settings.placement).apply()
    with tempfile.TemporaryDirectory() as folder:
        progress("preparing clips")
        clips = find_clips(Path(folder), settings)
        book = Book(
            None if json_file is None else book_path(json_file),
            {**settings.identity(), "weights": weights_stamp(pair), "counts": COUNTS},
        )
        result = Study(pair, clips, settings, book, json_file, progress).run()
    book.close()
    return result


def find_clips(folder: Path, settings: ParallelSettings) -> Clips:
    """The clips that `settings` name; rendered ones and unpacked ones go into `folder`."""
    if settings.files:
        return Clips(settings.files)
    if settings.dataset is not None:
        return from_dataset(
            settings.dataset, settings.clips, settings.seed, settings.min_seconds, folder
        )
    return rendered(folder, settings.clips, settings.seed, settings.scenes)


class Study:
    """One study: its runs in turns, then the parts that look at single runs."""

    def __init__(
        self,
        pair: ModelPair,
        clips: Clips,
        settings: ParallelSettings,
        book: Book,
        json_file: Path | None,
        progress: Progress,
    ) -> None:
        self.pair, self.clips, self.settings = pair, clips, settings
        self.book, self.json_file, self.progress = book, json_file, progress
        self.runner = Runner(pair, clips, settings)
        self.timed = len(clips.files)

    def run(self) -> dict[str, Any]:
        """Every run that is not on record yet, in turns: each repetition goes through all arms."""
        arms = [arm for arm in contenders(self.settings) if self.runner.can_run(arm)]
        self._warm_up(arms)
        for clip in range(self.timed):
            for repeat in range(self.settings.repeats):
                self._round(arms, clip, repeat)
                self._write(is_complete=False)
        return self._write(is_complete=True)

    def _warm_up(self, arms: Sequence[ParallelContender]) -> None:
        last = self.timed - 1, self.settings.repeats - 1
        for arm in arms:
            if arm.part != "sweep" and not self.book.has(arm.name, *last):
                self.progress(f"warm-up: {arm.name}")
                self.runner.warm_up(arm)

    def _round(self, arms: Sequence[ParallelContender], clip: int, repeat: int) -> None:
        clips, repeats = self.timed, self.settings.repeats
        for number, arm in enumerate(arms, start=1):
            if self.book.has(arm.name, clip, repeat):
                continue
            where = f"clip {clip + 1}/{clips}, {repeat + 1}/{repeats}"
            self.progress(f"{where}, arm {number}/{len(arms)}: {arm.name}")
            self.book.add(self.runner.run(arm, clip, repeat))

    def _write(self, is_complete: bool) -> dict[str, Any]:
        """The result of the runs so far."""
        made = summarise(self.book, self.settings)
        settings, target = self.settings, self.pair.target
        result = {
            "bench": "parallel",
            "model": target.name if settings.model else f"miniature:{self.pair.miniature}",
            "complete": is_complete,
            "dataset": self.clips.dataset,
            "samples": list(self.clips.ids),
            "clips": self.timed,
            "repeats": settings.repeats,
            "prune": settings.prune,
            "frames_per_scene": settings.frames_per_scene if settings.is_rendered else None,
            "scenes": settings.scenes if settings.is_rendered else None,
            "prompt_tokens": self.prompt_tokens(),
            "resumed_runs": self.book.resumed,
            **made,
            "goals": goals(made),
        }
        dtype = str(target.model.dtype).removeprefix("torch.")
        draft_threads = plan_threads(self.pair, placement=settings.placement).draft
        device = str(target.model.device)
        result["provenance"] = provenance(device, dtype, settings.seed, draft_threads)
        if self.json_file is not None:
            write_result(result, self.json_file)
        return result

    def prompt_tokens(self) -> dict[str, int]:
        """Tokens of the first clip's prompt, and how many of them stand for pixels."""
        from sooner.models import adapt

        inputs = self.runner.bench.clip("plain", 0).inputs
        visual = adapt(self.pair.target.model).visual_tokens(inputs)
        return {"all": int(inputs["input_ids"].shape[1]), "visual": int(visual.sum())}


def weights_stamp(pair: ModelPair) -> list[str]:
    """Names, and for local folders sizes and times of the weights: other weights, other runs."""
    stamps = []
    for loaded in (pair.target, pair.draft):
        if loaded is None:
            continue
        stamps.append(loaded.name)
        for path in sorted(Path(loaded.name).glob("*.safetensors")):
            stamps.append(f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}")
    return stamps
