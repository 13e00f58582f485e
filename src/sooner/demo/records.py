"""Records of tasks, decoded with a method and plainly: plain JSON, see `docs/demo.md`."""

from __future__ import annotations

import base64
import io
import shlex
from itertools import islice
from pathlib import Path
from typing import Any

from PIL import Image

from .. import miniatures
from ..documents import BrokenPage, read_pages
from ..errors import SoonerError
from ..methods import Autoregressive
from ..tasks.caption import compare_plain as compare_captions
from ..tasks.caption import warm_up
from ..tasks.chat import prepare as prepare_chat
from ..tasks.clip import Prompt, prepare, visible_patches
from ..tasks.imagine import DrawCallbacks, ImagineSettings, imagine
from ..tasks.imagine.batch import DrawingProgress
from ..tasks.imagine.drawing_model import DrawingModel
from ..tasks.loading import ModelPair
from ..tasks.parse import comparison
from ..tasks.parse.comparison import compare_plain
from ..tasks.parse.drafters import make_drafter
from ..tasks.parse.parser import PageParser
from ..tasks.parse.settings import ParseSettings
from ..tasks.registry import build_method
from ..tasks.settings import CaptionSettings
from ..tasks.streaming import run
from .round_records import ORIGINS, UNSEEN, Live, RoundRecord, Watch, Watched, lane

Record = dict[str, Any]
VERSION = 1
"""The version of records' format."""
THUMB, PAGE_SIDE = 144, 1000
"""Longer sides of a frame and of a page in a record, in pixels."""
MAX_PAGES = 8
"""How many pages of a document the demo reads."""
WAYS = (
    ("plain", "One at a time", "Plain: every code takes an iteration."),
    ("sjd", "Guessed, drawn anew", "Uncoupled: each iteration draws its guesses by fresh chance."),
    ("jacobi", "Guessed, held on to", "Coupled: a guess stays as it was wherever chance allows."),
)


def record_race(
    path: Path, pair: ModelPair, settings: CaptionSettings, live: Live = UNSEEN
) -> Record:
    """Returns the record of a video, captioned with a method, then plainly.

    Raises:
        SoonerError: the file or the request can't be served; one line.
        StoppedError: `live` is stopped.
    """
    live.stage("Reading the video ...")
    clip = prepare(path, pair, settings)
    small = f"miniature {pair.miniature}" if pair.miniature else None
    name = None if small else pair.target.name
    draft = [] if small or pair.draft is None else ["--draft", pair.draft.name]
    base = {
        "title": path.name,
        "prompt": clip.prompt,
        "model": small or pair.target.name,
        "draft": None if pair.draft is None else small or pair.draft.name,
        "is_toy": small is not None,
        "frames": [data_url(frame, THUMB) for frame in clip.frames.pixels],
        "command": command("caption", path, name, *draft, *settings.as_options()),
    }
    record, drafter = _race(base, clip, pair, settings, live)
    record["kept"] = visible_patches(getattr(drafter, "token_indices", None), clip, pair)
    record["notes"] = [*pair.foreign(path), *clip.notes]
    return record


def record_chat(question: str, pair: ModelPair, settings: CaptionSettings, live: Live) -> Record:
    """Returns the record of a question to a model of texts, answered with a method, then plainly.

    Raises:
        SoonerError: the model has no chat template, or the question is too long.
        StoppedError: `live` is stopped.
    """
    live.stage("Reading the question ...")
    prompt = prepare_chat([{"role": "user", "content": question}], pair, settings)
    base = {
        "title": question, "prompt": question, "model": pair.target.name, "draft": None,
        "is_toy": False, "notes": prompt.notes,
        "command": command("chat", question, pair.target.name, *settings.as_options()),
    }  # fmt: skip
    return _race(base, prompt, pair, settings, live)[0]


def _race(
    base: Record, prompt: Prompt, pair: ModelPair, settings: CaptionSettings, live: Live
) -> tuple[Record, Any]:
    """Run one prompt with a method, which is shown live, and then plainly.

    Args:
        base: what is known before.

    Returns:
        The record, and the method's drafter.
    """
    method = build_method(settings, pair, prompt.draft_inputs)
    warm_up(pair, prompt, settings, method)
    tokenizer, origin = pair.target.tokenizer, ORIGINS.get(method.name, "draft")
    base = {
        "version": VERSION, "kind": "race", **base, "origin": origin,
        "device": str(pair.target.device),
    }  # fmt: skip

    def show(rounds: list[RoundRecord]) -> None:
        fast = lane(rounds, tokenizer, origin)
        live.show({**base, "live": "The accelerated run, live", "fast": fast})

    watch, plain_watch = Watch(live, show), Watch(live)
    made, text = run(pair, prompt, settings, Watched(method, watch))
    overlaps = watch.draft_overlaps()
    base["fast"] = lane(watch.rounds, tokenizer, origin)
    live.show({**base, "live": "Now the same request plainly, for the race ..."})
    plain = Watched(Autoregressive(), plain_watch)
    compared = compare_captions(pair, prompt, settings, made, plain)
    plain_ids = [token for entry in plain_watch.rounds for token in entry.tokens]
    record = {
        **base, "method": made.stats.method, "mode": made.stats.mode,
        "beside": [[round(time, 5) for time in span] for span in overlaps], "text": text,
        "plain": lane(plain_watch.rounds, tokenizer, "target"), "stats": made.stats.as_dict(),
        "parity": compared["parity"], "same": plain_ids == made.tokens[0],
        "speedup": compared["decode_speedup"],
    }  # fmt: skip
    return record, watch.drafter


def record_pictures(
    prompt: str, model: DrawingModel, options: dict[str, Any], live: Live
) -> Record:
    """Draws one picture plainly, by uncoupled and by coupled Jacobi decoding.

    Args:
        options: further fields of `ImagineSettings`; the seed is the same for all.
    """

    def draw(method: str, name: str, about: str) -> Record:
        live.stage(f"Drawing: {name.lower()} ...")
        drawn: list[int] = []

        def note(progress: DrawingProgress) -> None:
            live.check()
            drawn.append(progress.codes(0))

        extra = {key: item for key, item in options.items() if key != "jacobi_window"}
        settings = ImagineSettings(method=method, **(extra if method == "plain" else options))
        made = imagine(prompt, model, settings, DrawCallbacks(on_progress=note))
        seconds = sum(made.record["seconds"].values())
        png = data_url(made.pixels[0, 0], kind="PNG")
        return {"name": name, "about": about, "drawn": drawn, "png": png, "seconds": seconds}

    lanes = [draw(*way) for way in WAYS]
    grid = model.canvas(options.get("size")).grid
    flags = [f"--{name.replace('_', '-')}={value:g}" for name, value in options.items()]
    name = None if model.miniature else model.name
    return {
        "version": VERSION, "kind": "picture", "title": prompt, "prompt": prompt, "lanes": lanes,
        "is_toy": model.miniature, "grid": [grid.height, grid.width],
        "command": command("imagine", prompt, name, *flags, "-o", "picture.png"),
    }  # fmt: skip


def record_pages(
    path: Path, pair: ModelPair, settings: ParseSettings, drafter: str, live: Live
) -> Record:
    """Parses pages with drafts, and plainly; says of each region how much the draft had right."""
    draft_of, parser = make_drafter(drafter), PageParser(pair, settings)
    pages: list[Record] = []
    for page in islice(read_pages(path), MAX_PAGES):
        if isinstance(page, BrokenPage):
            raise SoonerError(f"page {page.number} of '{path.name}' can't be read: {page.reason}")
        live.stage(f"Page {page.number}: reading the draft ...")
        if not pages:
            comparison.warm_up(parser, page)
        draft = None if draft_of is None else draft_of(page)
        live.stage(f"Page {page.number}: the model checks the draft ...")
        parsed = parser(page, draft)
        live.stage(f"Page {page.number}: the model alone ...")
        compared = compare_plain(parser, page, parsed)
        plain, e2e = compared["plain_seconds"], compared["e2e_speedup"]
        regions = [
            {
                "label": region.label,
                "text": region.text,
                "box": region.bbox_1000,
                "share": region.acceptance,
            }
            for region in parsed.regions
        ]
        pages.append(
            {
                "image": data_url(page.picture, PAGE_SIDE, "PNG"), "markdown": parsed.markdown,
                "regions": regions, "speedup": compared["decode_speedup"],
                "seconds": [plain, plain / e2e] if e2e else None,
                "drafting": parsed.seconds["drafter"],
                "steps": parsed.last.steps, "tokens": parsed.last.tokens, "mode": parsed.mode,
                "parity": compared["parity"], "drafter": parsed.drafter,
            }
        )  # fmt: skip
    name = "miniature" if pair.miniature else pair.target.name
    options = ["--drafter", drafter, f"--acceptance-threshold={settings.acceptance_threshold:g}"]
    return {
        "version": VERSION, "kind": "pages", "title": path.name, "pages": pages,
        "is_toy": pair.miniature is not None,
        "command": command("parse", path, name, *options, "-o", "parsed"),
    }  # fmt: skip


def data_url(pixels: Any, side: int | None = None, kind: str = "JPEG") -> str:
    """Returns uint8 `[height, width, 3]` as a `data:` URL, its longer side at most `side`."""
    picture, buffer = Image.fromarray(pixels), io.BytesIO()
    if side is not None:
        picture.thumbnail((side, side))
    picture.save(buffer, kind, **({"quality": 80} if kind == "JPEG" else {"optimize": True}))
    text = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{kind.lower()};base64,{text}"


def command(task: str, source: Path | str, model: str | None, *options: str) -> str:
    """Returns what does the same on a command line.

    Args:
        source: a file or a prompt.
        model: its name; `None` for the bundled one.
    """
    argument = source if isinstance(source, str) else source.name
    if source in [miniatures.find(name).sample for name in miniatures.names()]:
        argument = "--sample"
    named = [] if model is None else ["--model", model]
    return shlex.join(["sooner", task, argument, *named, *options, "--compare"])
