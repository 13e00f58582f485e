"""`sooner imagine`: pictures from prompts, and clips continued, with live progress."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ..errors import SoonerError
from ..tasks.imagine.settings import ImagineSettings
from . import options
from .display import Display
from .from_settings import Fields, from_settings
from .imagine_jobs import ImagineRequest, draw_clip, draw_prompt

BUG, BAD, INTERRUPTED = 1, 2, 130
SAMPLE = "sample"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="imagine")(imagine)


@from_settings
def imagine(
    *,
    prompt: Annotated[
        str | None, typer.Argument(metavar="[PROMPT]", help="What is to be drawn.")
    ] = None,
    clip: Annotated[
        str | None,
        typer.Option(
            "--continue",
            metavar="CLIP",
            help="Continue this clip instead, a folder of clips (RealEstate-10k's layout too), or "
            "'sample', the bundled one.",
        ),
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|NAME",
            help="Draw every prompt of a text file, of coco-captions or of parti-prompts, into "
            "the folder -o; a rerun goes on.",
        ),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw the bundled prompt.")] = False,
    request: Annotated[ImagineRequest, Fields(without=("display",))],
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="At most so many prompts or clips.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="DIR|ID", help="Where --prompts NAME is, or a hub id.")
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Draw pictures, or continue a clip, in fewer steps.

    The file tells its prompt, seed, model, method, steps and mode; the same command with the same
    --seed draws the same pixels. After Ctrl-C, finished pictures are saved.
    """
    if request.debug:
        options.log_decisions()
    request = replace(request, display=Display(quiet))
    wish = options.single_choice(
        "no prompt given; write one, or use --continue CLIP, --prompts FILE or --sample",
        PROMPT=prompt, **{"--continue": clip, "--prompts": prompts, "--sample": sample or None},
    )  # fmt: skip
    if source is not None and wish != "--prompts":
        raise SoonerError("--source is where --prompts NAME lies; leave one of them out")
    code = _run(request, wish, prompt or clip or prompts or "", source, limit)
    if code:
        raise typer.Exit(code)


def _run(
    request: ImagineRequest, wish: str, text: str, source: str | None, limit: int | None
) -> int:
    """Run the request; returns the exit code."""
    from .imagine_batch import draw_clips, draw_prompts

    if wish == "--prompts":
        return draw_prompts(request, text, source, limit)
    if wish == "--continue":
        path = bundled_clip() if text == SAMPLE and not Path(text).exists() else Path(text)
        if path.is_dir():
            return draw_clips(request, path, limit)
        return draw_clip(replace(request, settings=_seeded(request.settings)), path)
    prompt = bundled_prompt() if wish == "--sample" else text
    return draw_prompt(replace(request, settings=_seeded(request.settings)), prompt)


def _seeded(settings: ImagineSettings) -> ImagineSettings:
    """With a seed, so that a name can be made of it before anything is loaded."""
    if settings.seed is not None:
        return settings
    return replace(settings, seed=random.SystemRandom().randrange(1 << 31))


def bundled_prompt() -> str:
    """Returns a prompt that the image miniature understands."""
    from .. import miniatures

    return miniatures.find("image").prompt


def bundled_clip() -> Path:
    """Returns the motion miniature's sample.

    Raises:
        SoonerError: it is not in this installation.
    """
    from .. import miniatures

    sample = miniatures.find("motion").sample
    if sample is None or not sample.is_file():
        raise SoonerError("the bundled clip is not in this installation; name a file")
    return sample
