"""The race: one video captioned by a method and plainly, as one JSON record."""

from __future__ import annotations

import base64
import io
import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from PIL import Image

from ..methods import Autoregressive
from ..models import adapt
from ..tasks.clip import Clip, prepare
from ..tasks.comparison import check, plain_data, warm_up
from ..tasks.loading import ModelPair
from ..tasks.registry import build_method
from ..tasks.round_records import RoundRecord, Watch, Watched
from ..tasks.settings import CaptionSettings
from ..tasks.streaming import run

VERSION = 1
"""Of records."""
THUMB = 144
"""Longer side of a frame in a record, in pixels."""
ORIGINS = {
    "plain": "target", "prompt-lookup": "lookup", "onsd": "draft", "eagle": "head",
    "dflash": "head", "ddtree": "head", "sparse-to-dense": "short",
}  # fmt: skip
"""Who proposes the tokens of a method; any other has a draft model."""
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
    """Caption a video with a method, then plainly.

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
    texts, shown = TokenPieces(pair.target.tokenizer), [0.0]
    base = {"version": VERSION, "kind": "race", **_asked(path, pair, settings, clip)}

    def tell(rounds: list[RoundRecord]) -> None:
        now = rounds[-1].ended
        if now - shown[0] >= LIVE or len(rounds) == 1:
            shown[0] = now
            origin = ORIGINS.get(settings.method or "", "draft")
            fast = lane(rounds, texts, origin)
            on_live({**base, "live": "The accelerated run, live", "origin": origin, "fast": fast})

    watch, plain_watch = Watch(tell, is_stopped), Watch(is_stopped=is_stopped)
    made, text = run(pair, clip, settings, Watched(method, watch))
    origin = ORIGINS.get(made.stats.method, "draft")
    fast = lane(watch.rounds, texts, origin)
    live = "Now the same request plainly, for the race ..."
    on_live({**base, "live": live, "origin": origin, "fast": fast})
    plain, _ = run(pair, clip, settings, Watched(Autoregressive(), plain_watch))
    slow = lane(plain_watch.rounds, texts, "target")
    parity = None
    if settings.is_greedy:
        parity = plain_data(check(pair, clip, plain.tokens[0], made.tokens[0]))
    is_red = parity is not None and parity["verdict"] == "bug"
    speeds = plain.stats.tokens_per_second, made.stats.tokens_per_second
    return {
        **base,
        "method": made.stats.method,
        "mode": made.stats.mode,
        "origin": origin,
        "beside": made.stats.draft_is_hidden,
        "text": text,
        "kept": kept_patches(getattr(watch.drafter, "kept_tokens", None), clip, pair),
        "fast": fast,
        "plain": slow,
        "stats": _stats(made),
        "parity": parity,
        "same": plain.tokens[0] == made.tokens[0],
        "speedup": None if is_red or not all(speeds) else speeds[1] / speeds[0],
        "notes": clip.notes,
    }


def kept_patches(
    kept: Sequence[Sequence[int]] | None, clip: Clip, pair: ModelPair
) -> list[list[bool]] | None:
    """Of each frame, which of its visual tokens the draft was shown.

    Args:
        kept: of each row, indices among its visual tokens; `None` where the draft saw all.

    Returns:
        Frame by frame, in the order of the tokens; `None` where nothing was pruned.
    """
    if not kept:
        return None
    adapter = adapt(pair.target.model)
    seen = adapter.visual_tokens(clip.inputs)[0]
    frames = adapter.packed_frames(clip.inputs)[0].to(seen.device)[seen].tolist()
    shown = set(kept[0])
    if len(shown) == len(frames):
        return None
    found: list[list[bool]] = [[] for _ in clip.frames.pixels]
    for token, frame in enumerate(frames):
        if 0 <= frame < len(found):
            found[frame].append(token in shown)
    return found


class TokenPieces:
    """The letters that each token adds to a text, found once.

    Args:
        tokenizer: of the model.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self._words: dict[int, str] = {}

    def word(self, token: int) -> str:
        """A token by itself."""
        if token not in self._words:
            self._words[token] = self.tokenizer.decode([token]) or "·"
        return self._words[token]

    def pieces(self, tokens: Sequence[int]) -> list[str]:
        """What each token adds; detokenizers join punctuation and bytes, so a few tokens before
        it are looked at."""
        found = []
        for index in range(len(tokens)):
            start = max(index - 6, 0)
            before = self._text(tokens[start:index])
            whole = self._text(tokens[start : index + 1])
            same = 0
            while same < min(len(before), len(whole)) and before[same] == whole[same]:
                same += 1
            found.append(whole[same:])
        return found

    def _text(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))


def lane(rounds: Sequence[RoundRecord], texts: TokenPieces, origin: str) -> dict[str, Any]:
    """A run as plain data: `tokens`, each with its text, origin, probability, round and depth (0:
    the target's own), and `rounds` with times, draft and accepted path."""
    rounds = [one for one in rounds if one.tokens]
    pieces = iter(texts.pieces([token for one in rounds for token in one.tokens]))
    tokens: list[dict[str, Any]] = []
    told = []
    for number, one in enumerate(rounds):
        chances = [] if one.logprobs is None else one.logprobs.exp().tolist()
        path = one.path()
        for index in range(len(one.tokens)):
            is_drafted = index < one.drafted
            tokens.append(
                {
                    "t": next(pieces),
                    "o": origin if is_drafted else "target",
                    "p": _rounded(chances[index]) if index < len(chances) else None,
                    "r": number,
                    "d": index + 1 if is_drafted else 0,
                    "n": path[index] if is_drafted else None,
                }
            )
        told.append(_round(one, texts, path))
    return {
        "tokens": tokens,
        "rounds": told,
        "first": told[0]["e"] if told else 0.0,
        "seconds": told[-1]["e"] if told else 0.0,
    }


def _round(one: RoundRecord, texts: TokenPieces, path: list[int]) -> dict[str, Any]:
    nodes, parents = one.nodes()
    return {
        "s": None if one.drafting is None else _rounded(one.drafting),
        "v": _rounded(one.verifying),
        "e": _rounded(one.ended),
        "n": len(one.tokens),
        "draft": [texts.word(node) for node in nodes],
        "parents": parents,
        "path": path,
    }


def _rounded(value: float) -> float | None:
    return round(value, 5) if math.isfinite(value) else None


def _asked(path: Path, pair: ModelPair, settings: CaptionSettings, clip: Clip) -> dict[str, Any]:
    return {
        "title": path.name,
        "prompt": clip.prompt,
        "model": _name(pair.target.name, pair),
        "draft": None if pair.draft is None else _name(pair.draft.name, pair),
        "device": str(pair.target.device),
        "frames": [data_url(one, THUMB) for one in clip.frames.pixels],
        "command": command(path, pair, settings),
    }


def _name(name: str, pair: ModelPair) -> str:
    return f"miniature {pair.miniature}" if pair.miniature else name


def data_url(pixels: Any, side: int | None = None, kind: str = "JPEG") -> str:
    """A picture, uint8 `[height, width, 3]`, as a `data:` URL, its longer side at most `side`."""
    picture, kept = Image.fromarray(pixels), io.BytesIO()
    if side is not None:
        picture.thumbnail((side, side))
    picture.save(kept, kind, **({"quality": 80} if kind == "JPEG" else {"optimize": True}))
    text = base64.b64encode(kept.getvalue()).decode()
    return f"data:image/{kind.lower()};base64,{text}"


def command(path: Path, pair: ModelPair, settings: CaptionSettings) -> str:
    """What does the same on a command line."""
    words = ["sooner", "caption", path.name]
    if pair.miniature is None:
        words += ["--model", pair.target.name]
        words += ["--draft", pair.draft.name] if pair.draft is not None else []
    elif path == _sample(pair):
        words[2] = "--sample"
    for one in fields(settings):
        value = getattr(settings, one.name)
        if value != one.default and one.name != "compare":
            words += [f"--{one.name.replace('_', '-')}", str(value)]
    return shlex.join([*words, "--compare"])


def _sample(pair: ModelPair) -> Path | None:
    from .. import miniatures

    return miniatures.find(pair.miniature).sample if pair.miniature else None


def _stats(made: Any) -> dict[str, Any]:
    told = made.stats.as_dict()
    kept = (
        "tokens", "nfe", "acceptance_rate", "mean_acceptance_length", "tokens_per_second",
        "decode_seconds", "num_draft_tokens", "num_accepted_draft_tokens", "seconds", "notes",
    )  # fmt: skip
    return {name: told[name] for name in kept}
