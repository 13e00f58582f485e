"""Options that several subcommands share, with one name and help each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SoonerError
from ..tasks.settings import CaptionSettings
from .from_settings import Fields, option_of

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", help="Videos, or folders of them.")]
Model = Annotated[
    str | None,
    typer.Option(metavar="ID_OR_PATH", help="Target model; without it, the bundled miniature."),
]
Draft = Annotated[
    str | None, typer.Option(metavar="ID_OR_PATH", help="Draft model of the same family.")
]
Frames = Annotated[int | None, option_of(CaptionSettings, "frames")]
Fps = Annotated[float | None, option_of(CaptionSettings, "fps")]
Prompt = Annotated[str | None, option_of(CaptionSettings, "prompt")]
Device = Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, ...")]
DeviceMap = Annotated[
    str | None,
    typer.Option(
        metavar="auto|JSON", help="Shard the target over devices, as transformers' device_map."
    ),
]
TensorParallel = Annotated[
    bool,
    typer.Option("--tp", help="Shard the target over torchrun's processes; the first one drafts."),
]
DraftDevice = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Where the draft runs; by default --device. --device-map auto leaves a GPU free that "
        "is named here.",
    ),
]
Dtype = Annotated[str, typer.Option(metavar="NAME", help="auto, float32, bfloat16 or float16.")]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Torch threads on a CPU; by default one for each core that no process beside it has, "
        "for miniatures 1.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no summary.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and decisions.")]


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads before models are loaded.

    Raises:
        SoonerError: fewer than one.
    """
    from ..methods.threads import Threads

    Threads.plan(threads)


@dataclass(frozen=True)
class Models:
    """A pair as it is asked for; see `load_pair`.

    Raises:
        SoonerError: two ways to shard the target at once.
    """

    model: Model = None
    draft: Draft = None
    device: Device = "auto"
    device_map: DeviceMap = None
    tp: TensorParallel = False
    draft_device: DraftDevice = None
    dtype: Dtype = "auto"
    threads: Threads = None

    def __post_init__(self) -> None:
        if self.tp and self.device_map is not None:
            raise SoonerError("--tp and --device-map both shard the target; give one of them")

    def load(
        self,
        debug: bool,
        placement: str | None = None,
        miniature: str = "video",
        method: str | None = None,
        sees: bool = True,
    ) -> Any:
        """Load the pair, without the libraries' own progress bars and warnings unless `debug`, and
        set the threads, see `sooner.tasks.threads.plan_threads`.

        Args:
            placement: where a draft may work beside the target; `None`: it does not.
            miniature: which one, where no model is named.
            method: asked for; if that is `parallel` and spawns its draft, the process is started,
                and nobody else needs the draft's weights.
            sees: refuse a target that reads text only.

        Raises:
            SoonerError: as `load_pair`; or fewer than one thread.
        """
        from ..methods.parallel.worker import spawns
        from ..tasks.loading import load_pair, separate_device
        from ..tasks.threads import plan_threads

        if not debug:
            hush()
        check_threads(self.threads)
        device_map = parse_device_map(self.device_map)
        separate = separate_device(self.draft_device, self.device, device_map)
        spawn_draft = method == "parallel" and spawns(placement or "auto", separate, separate)
        pair = load_pair(
            self.model,
            self.draft,
            device=self.device,
            dtype=self.dtype,
            device_map=device_map,
            tp_plan="auto" if self.tp else None,
            draft_device=self.draft_device,
            spawn_draft=spawn_draft,
            miniature=miniature,
            sees=sees,
        )
        plan_threads(pair, self.threads, placement).apply()
        if spawn_draft and pair.draft is not None and pair.draft.model is not None:
            pair.draft.spawned.start()  # if that fails, runs say so and go on
        return pair


SINGLE_MODEL = Fields(only=("model", "device", "dtype", "threads"))
"""Options of a command that takes no draft."""


def parse_device_map(text: str | None) -> Any:
    """Returns what transformers takes: a word such as `auto`, or the object of a JSON text.

    Raises:
        SoonerError: a text that begins like JSON and is none.
    """
    import json

    if text is None or not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise SoonerError(
            f'--device-map is no JSON ({error}); give auto, or {{"model.language_model": 1, ...}}'
        ) from error


def load_drawing_model(debug: bool = False, **values: Any) -> Any:
    """Load a model that draws, without the libraries' own progress bars and warnings.

    Raises:
        SoonerError: as `sooner.tasks.imagine.load_drawing_model`.
    """
    from ..tasks.imagine.loading import load_drawing_model

    if not debug:
        hush()
    return load_drawing_model(**values)


def hush() -> None:
    """Keep the libraries' own progress bars and warnings off the screen."""
    import huggingface_hub
    import transformers

    huggingface_hub.logging.set_verbosity_error()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def single_choice(none: str, **choices: Any) -> str:
    """Returns the name of the one thing that is not `None`.

    Raises:
        SoonerError: `none` where nothing is given; or more than one is.
    """
    names = [name for name, value in choices.items() if value is not None]
    if not names:
        raise SoonerError(none)
    if len(names) > 1:
        raise SoonerError(f"{' and '.join(names)} exclude each other; give one of them")
    return names[0]


def log_decisions() -> None:
    """Show what the engine logs, such as why a draft length was chosen."""
    import logging

    logging.basicConfig(format="%(name)s: %(message)s")
    logging.getLogger("sooner").setLevel(logging.INFO)
