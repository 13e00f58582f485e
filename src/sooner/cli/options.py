"""Options that several subcommands share, with one name and help each."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import check_fields, option
from ..errors import SoonerError
from .from_settings import Fields


def parse_device_map(text: str) -> Any:
    """Returns what transformers takes: a word such as `auto`, or the object of a JSON text.

    Raises:
        SoonerError: a text that begins like JSON and is none.
    """
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise SoonerError(
            f'--device-map is no JSON ({error}); give auto, or {{"model.language_model": 1, ...}}'
        ) from error


@dataclass(frozen=True, kw_only=True)
class SingleModel:
    """A model and where it computes.

    Attributes:
        model: hub id, folder, GGUF file or installed name; without it, a miniature or SmolLM2.
        device: where it computes: auto, cpu, cuda, cuda:1, ...
        dtype: of its numbers: auto, float32, bfloat16 or float16.
        threads: torch threads on a CPU; by default one for each core that no process beside it has,
            for miniatures 1.

    Raises:
        SoonerError: a value out of range.
    """

    model: str | None = option(None, metavar="ID_OR_PATH")
    device: str = option("auto", metavar="NAME")
    dtype: str = option("auto", metavar="NAME")
    threads: int | None = option(None, 1)

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True)
class Models(SingleModel):
    """A pair as it is asked for; see `load_pair`.

    Attributes:
        draft: draft model of the same family.
        device_map: shard the target over devices, as transformers' device_map.
        draft_device: where the draft runs; by default `device`. `device_map` auto leaves a GPU free
            that is named here.
    """

    draft: str | None = option(None, metavar="ID_OR_PATH")
    device_map: str | dict[str, Any] | None = option(
        None, metavar="auto|JSON", parse=parse_device_map
    )
    draft_device: str | None = option(None, metavar="NAME")

    def load(
        self, placement: str | None = None, miniature: str = "video", method: str | None = None,
        sees: bool = True,
    ) -> Any:  # fmt: skip
        """Load the pair and set the threads, see `sooner.tasks.registry.plan_threads`.

        Args:
            placement: where a draft may work beside the target; `None`: it does not.
            miniature: which one, where no model is named.
            method: asked for; if that is `parallel` and spawns its draft, the process is started,
                and nobody else needs the draft's weights.
            sees: refuse a target that reads text only.

        Raises:
            SoonerError: as `load_pair`.
        """
        from ..methods.parallel.worker import place
        from ..tasks.loading import load_pair, separate_device
        from ..tasks.registry import plan_threads

        separate = separate_device(self.draft_device, self.device, self.device_map)
        spawn_draft = method == "parallel" and placement == "spawn"
        if method == "parallel" and placement in (None, "auto") and separate is not None:
            spawn_draft = place("auto", separate, separate) == "spawn"
        pair = load_pair(
            self.model, self.draft, device=self.device, dtype=self.dtype,
            device_map=self.device_map, draft_device=self.draft_device, spawn_draft=spawn_draft,
            miniature=miniature, sees=sees,
        )  # fmt: skip
        plan_threads(pair, self.threads, placement).apply()
        if spawn_draft and pair.draft is not None:
            pair.draft.spawned.start()  # if that fails, runs say so and go on
        return pair


SINGLE_MODEL = Fields(only=("model", "device", "dtype", "threads"))
"""Options of a pair for a command that takes no draft."""


@dataclass(frozen=True, kw_only=True)
class Videos:
    """The videos that a command works on.

    Attributes:
        files: videos, or folders of them.
        sample: the bundled clip.
    """

    files: list[Path] | None = option(None, metavar="[FILE...]", positional=True)
    sample: bool = False

    def paths(self, model: str | None) -> list[Path]:
        """Returns the files given, the bundled clip, or both.

        Raises:
            SoonerError: neither; or nothing but the miniature to read them, which is not installed.
        """
        from .. import miniatures

        if model is None:
            miniatures.find("video")
        paths = [*(self.files or []), *([miniatures.sample_of("video")] if self.sample else [])]
        if not paths:
            raise SoonerError("no video given; name a file or a folder, or use --sample")
        return paths


def from_root(name: str | None) -> str | None:
    """Returns a folder by its path from the root, which all machines share; a hub id as it is.

    Raises:
        SoonerError: a path that is not there.
    """
    if name is None:
        return None
    path = os.path.expanduser(name)
    if os.path.exists(path):
        return os.path.abspath(path)
    if name.startswith(("/", ".", "~")):
        raise SoonerError(f"folder '{name}' does not exist; check the path")
    return name
