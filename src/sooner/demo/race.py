"""The race: one video captioned by a method and plainly, as one JSON record."""

from __future__ import annotations

import base64
import io
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from .. import miniatures
from ..methods import Autoregressive
from ..tasks.caption import foreign_notes
from ..tasks.clip import prepare, visible_patches
from ..tasks.comparison import check, warm_up
from ..tasks.loading import ModelPair
from ..tasks.registry import build_method
from ..tasks.round_records import ORIGINS, RoundRecord, TokenPieces, Watch, Watched, lane
from ..tasks.settings import CaptionSettings
from ..tasks.streaming import run

VERSION = 1
"""The version of records' format."""
THUMB = 144
"""Longer side of a frame in a record, in pixels."""
LIVE = 0.15
"""Seconds between two records of a run that goes on."""

OnRecord = Callable[[dict[str, Any]], None]


def record_race(
    path: Path,
    pair: ModelPair,
    settings: CaptionSettings,
    on_live: OnRecord = lambda record: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Returns the record of a video, captioned with a method, then plainly.

    Args:
        on_live: told the record so far, in which only the method's lane runs; `live` says what
            happens now.
        is_stopped: asked after every round.

    Returns:
        The record, see `docs/demo.md`.

    Raises:
        SoonerError: the file or the request can't be served; one line.
        StoppedError: `is_stopped` said so.
    """
    on_live({"kind": "race", "live": "Reading the video ..."})
    clip = prepare(path, pair, settings)
    method = build_method(settings, pair, clip.draft_inputs)
    warm_up(pair, clip, settings, method)
    texts, last = TokenPieces(pair.target.tokenizer), [0.0]
    small = f"miniature {pair.miniature}" if pair.miniature else None
    base = {
        "version": VERSION,
        "kind": "race",
        "title": path.name,
        "prompt": clip.prompt,
        "model": small or pair.target.name,
        "draft": None if pair.draft is None else small or pair.draft.name,
        "is_toy": small is not None,
        "device": str(pair.target.device),
        "frames": [data_url(frame, THUMB) for frame in clip.frames.pixels],
        "command": command(path, pair, settings),
    }

    def tell(rounds: list[RoundRecord]) -> None:
        now = rounds[-1].ended
        if now - last[0] >= LIVE or len(rounds) == 1:
            last[0] = now
            origin = ORIGINS.get(settings.method or "", "draft")
            fast = lane(rounds, texts, origin)
            on_live({**base, "live": "The accelerated run, live", "origin": origin, "fast": fast})

    watch, plain_watch = Watch(tell, is_stopped), Watch(is_stopped=is_stopped)
    made, text = run(pair, clip, settings, Watched(method, watch))
    overlaps = watch.draft_overlaps()
    origin = ORIGINS.get(made.stats.method, "draft")
    fast = lane(watch.rounds, texts, origin)
    live = "Now the same request plainly, for the race ..."
    on_live({**base, "live": live, "origin": origin, "fast": fast})
    plain, _ = run(pair, clip, settings, Watched(Autoregressive(), plain_watch))
    slow = lane(plain_watch.rounds, texts, "target")
    parity = None
    if settings.is_greedy:
        parity = check(pair, clip, plain.tokens[0], made.tokens[0]).as_dict()
    is_red = parity is not None and parity["verdict"] == "bug"
    speeds = plain.stats.tokens_per_second, made.stats.tokens_per_second
    return {
        **base,
        "method": made.stats.method,
        "mode": made.stats.mode,
        "origin": origin,
        "beside": [[round(time, 5) for time in span] for span in overlaps],
        "text": text,
        "kept": visible_patches(getattr(watch.drafter, "token_indices", None), clip, pair),
        "fast": fast,
        "plain": slow,
        "stats": made.stats.as_dict(),
        "parity": parity,
        "same": plain.tokens[0] == made.tokens[0],
        "speedup": None if is_red or not all(speeds) else speeds[1] / speeds[0],
        "notes": [*foreign_notes(pair, path), *clip.notes],
    }


def data_url(pixels: Any, side: int | None = None, kind: str = "JPEG") -> str:
    """Returns a picture, uint8 `[height, width, 3]`, as a `data:` URL, its longer side at most
    `side`.
    """
    picture, buffer = Image.fromarray(pixels), io.BytesIO()
    if side is not None:
        picture.thumbnail((side, side))
    picture.save(buffer, kind, **({"quality": 80} if kind == "JPEG" else {"optimize": True}))
    text = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{kind.lower()};base64,{text}"


def command(path: Path, pair: ModelPair, settings: CaptionSettings) -> str:
    """Returns what does the same on a command line."""
    argument, named = path.name, []
    if pair.miniature is None:
        named = ["--model", pair.target.name]
        named += ["--draft", pair.draft.name] if pair.draft is not None else []
    elif path == miniatures.find(pair.miniature).sample:
        argument = "--sample"
    return shlex.join(["sooner", "caption", argument, *named, *settings.as_options(), "--compare"])
