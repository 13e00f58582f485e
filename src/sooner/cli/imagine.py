"""`sooner imagine`: pictures from prompts, and clips continued, watched as they are drawn."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import SoonerError
from . import options
from .display import Display

if TYPE_CHECKING:
    from ..tasks.imagine.settings import ImagineSettings
    from .imagine_jobs import Request

BUG, BAD, INTERRUPTED = 1, 2, 130
SAMPLE = "sample"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(name="imagine")(imagine)


def imagine(
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
    count: Annotated[
        int, typer.Option("-n", "--count", metavar="N", help="Pictures, drawn in one batch.")
    ] = 1,
    model: options.Model = None,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="jacobi, sjd, gsd (lossy) or plain.")
    ] = "jacobi",
    window: Annotated[
        int | None,
        typer.Option(metavar="N", help="Codes drafted ahead; by default what suits the device."),
    ] = None,
    coupling: Annotated[
        str | None, typer.Option(metavar="NAME", help="gumbel, maximal or independent.")
    ] = None,
    strength: Annotated[
        float | None, typer.Option(metavar="A", help="Share of the places that are coupled.")
    ] = None,
    init: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="First drafts: last, random, left, above, ..."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(metavar="T", help="By default, as the next three, the model's.")
    ] = None,
    top_k: Annotated[str | None, typer.Option(metavar="K|all", help="Codes drawn from.")] = None,
    top_p: Annotated[float | None, typer.Option(metavar="P", help="Share drawn from.")] = None,
    guidance: Annotated[
        float | None, typer.Option(metavar="G", help="Classifier-free guidance; 1 is none.")
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="The likeliest code always.")] = False,
    seed: Annotated[
        int | None, typer.Option(metavar="S", help="Of every draw; by default a fresh one.")
    ] = None,
    size: Annotated[
        str | None, typer.Option(metavar="HxW", help="Pixels, for models of several sizes.")
    ] = None,
    given: Annotated[
        int | None, typer.Option(metavar="N", help="Frames that a clip is continued from.")
    ] = None,
    start: Annotated[
        int, typer.Option(metavar="I", help="The first of them; below 0, from the clip's end.")
    ] = 0,
    compare: Annotated[
        bool, typer.Option("--compare", help="Draw plainly too: steps, speed-up, parity.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="A .png, an .mp4, or a folder for many."
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is there already.")
    ] = False,
    singles: Annotated[
        bool, typer.Option("--singles", help="Beside the grid, each picture: out-1.png, ...")
    ] = False,
    only_new: Annotated[
        bool, typer.Option("--only-new", help="Leave the given frames out of the clip.")
    ] = False,
    mark: Annotated[
        bool, typer.Option("--mark", help="Draw an edge around frames that were drawn.")
    ] = False,
    keep_partial: Annotated[
        bool, typer.Option("--keep-partial", help="After Ctrl-C, save unfinished pictures too.")
    ] = False,
    preview_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A PNG of what is there, step by step.")
    ] = None,
    preview_every: Annotated[int, typer.Option(metavar="N", help="Steps between them.")] = 8,
    limit: Annotated[
        int | None, typer.Option(metavar="N", help="At most so many prompts or clips.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="DIR|ID", help="Where --prompts NAME is, or a hub id.")
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Of a video model; vqgan.ckpt or movqgan_270M.ckpt of a Chameleon."
        ),
    ] = None,
    layout: Annotated[
        str | None, typer.Option(metavar="NAME", help="Chameleon: chameleon, lumina, lumina2.")
    ] = None,
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="Run a tokenizer's TorchScript.")
    ] = False,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    threads: options.Threads = None,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Draw pictures, or continue a clip, in fewer steps.

    The file tells its prompt, seed, model, method, steps and mode; the same command with the same
    --seed draws the same pixels. After Ctrl-C, finished pictures are saved.
    """
    from ..tasks.imagine.settings import ImagineSettings, parse_size, parse_top_k
    from .imagine_jobs import Request

    if debug:
        options.log_decisions()
    settings = ImagineSettings(
        method=method,
        window=window,
        coupling=coupling,
        strength=strength,
        init=init,
        temperature=temperature,
        top_k=parse_top_k(top_k),
        top_p=top_p,
        guidance=guidance,
        greedy=greedy,
        seed=seed,
        count=count,
        size=parse_size(size),
        given=given,
        start=start,
        compare=compare,
    )
    models = {
        "model": model, "device": device, "dtype": dtype, "threads": threads, "layout": layout,
        "tokenizer": None if tokenizer is None else str(tokenizer), "trust": trust_code,
    }  # fmt: skip
    request = Request(
        settings=settings,
        models=models,
        display=Display(quiet),
        output=output,
        overwrite=overwrite,
        singles=singles,
        only_new=only_new,
        mark=mark,
        keep_partial=keep_partial,
        preview_dir=preview_dir,
        preview_every=preview_every,
        debug=debug,
    )
    wish = options.only_one(
        "no prompt given; write one, or use --continue CLIP, --prompts FILE or --sample",
        PROMPT=prompt, **{"--continue": clip, "--prompts": prompts, "--sample": sample or None},
    )  # fmt: skip
    if source is not None and wish != "--prompts":
        raise SoonerError("--source is where --prompts NAME lies; leave one of them out")
    code = _run(request, wish, prompt or clip or prompts or "", source, limit)
    if code:
        raise typer.Exit(code)


def _run(request: Request, wish: str, text: str, source: str | None, limit: int | None) -> int:
    """Do what is wished for; returns the exit code."""
    from .imagine_batch import draw_clips, draw_prompts
    from .imagine_jobs import draw_clip, draw_prompt

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
    """A prompt that the image miniature understands."""
    from .. import miniatures

    return miniatures.find("image").prompt


def bundled_clip() -> Path:
    """The motion miniature's sample.

    Raises:
        SoonerError: it is not in this installation.
    """
    from .. import miniatures

    sample = miniatures.find("motion").sample
    if sample is None or not sample.is_file():
        raise SoonerError("the bundled clip is not in this installation; name a file")
    return sample
