"""Records of the other tasks: pictures, pages, a robot, an attention head."""

from __future__ import annotations

import base64
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps

from .. import miniatures
from ..documents import BrokenPage, read_pages
from ..errors import SoonerError
from ..models import adapt
from ..sparse.attention import States
from ..sparse.attention.run import backend_for
from ..sparse.cost import measure
from ..sparse.patterns import Grid, HeadPattern
from ..sparse.search import SearchSettings
from ..sparse.search.capture import capture
from ..sparse.search.heads import decide, shortlist
from ..sparse.search.run import CHECK_TURN
from ..sparse.search.score import survey, trial
from ..sparse.search.space import Space
from ..tasks.act.observation import Observation
from ..tasks.act.policy import Policy
from ..tasks.act.rollout import run_rollouts
from ..tasks.imagine import DrawCallbacks, ImagineSettings, imagine
from ..tasks.imagine.drawing_model import DrawingModel
from ..tasks.imagine.progress import DrawingProgress
from ..tasks.loading import ModelPair
from ..tasks.parse.comparison import compare_plain, warm_up
from ..tasks.parse.drafters import make_drafter
from ..tasks.parse.parser import PageParser
from ..tasks.parse.settings import ParseSettings
from ..tasks.round_records import stop_if
from ..tasks.search import (
    SearchCallbacks,
    SearchRequest,
    attention_map,
    generated_clip,
    read_sample,
)
from .race import VERSION, OnRecord, data_url

IsStopped = Callable[[], bool]
WAYS = (
    ("plain", "One at a time", "Plain: every code takes an iteration."),
    ("sjd", "Guessed, drawn anew", "Uncoupled: each iteration draws its guesses by fresh chance."),
    ("jacobi", "Guessed, held on to", "Coupled: a guess stays as it was wherever chance allows."),
)
MAX_PAGES = 8
"""How many pages of a document the demo reads."""
PAGE_SIDE = 1000
"""Longer side of a page in a record, in pixels."""


def record_pictures(
    prompt: str,
    model: DrawingModel,
    options: dict[str, Any],
    on_live: OnRecord = lambda record: None,
    is_stopped: IsStopped = lambda: False,
) -> dict[str, Any]:
    """Draw one picture plainly, by uncoupled and by coupled Jacobi decoding.

    Args:
        options: further fields of `ImagineSettings`; the seed is the same for all.
    """
    lanes = []
    for method, name, about in WAYS:
        on_live({"kind": "race", "live": f"Drawing: {name.lower()} ..."})
        drawn: list[int] = []

        def note(progress: DrawingProgress, drawn: list[int] = drawn) -> None:
            stop_if(is_stopped)
            drawn.append(int(progress.spans()[1][0].sum()))

        extra = {name: item for name, item in options.items() if name != "jacobi_window"}
        settings = ImagineSettings(method=method, **(extra if method == "plain" else options))
        made = imagine(prompt, model, settings, DrawCallbacks(on_progress=note))
        seconds = sum(made.record["seconds"].values())
        png = data_url(made.pixels[0, 0], kind="PNG")
        lanes.append({"name": name, "about": about, "drawn": drawn, "png": png, "seconds": seconds})
    grid = model.canvas(options.get("size")).grid
    steps = [len(item["drawn"]) for item in lanes]
    words = (
        "A code is the number that stands for one small square of the picture. An iteration is one "
        f"question to the big model, which plain drawing asks for every code: {steps[0]} times. "
        "Jacobi decoding asks about many codes at once, guesses them from the iteration before and "
        f"keeps those that turn out right: {steps[1]} iterations. If each new guess also holds on "
        f"to the one before wherever the odds allow, more of them agree: {steps[2]} iterations. "
        "Chance falls differently in each, so the pictures differ; their odds are the same."
    )
    return {
        "version": VERSION, "kind": "picture", "title": prompt, "prompt": prompt, "words": words,
        "is_toy": model.miniature, "grid": [grid.height, grid.width], "lanes": lanes,
    }  # fmt: skip


def record_pages(
    path: Path,
    pair: ModelPair,
    settings: ParseSettings,
    drafter: str = "auto",
    on_live: OnRecord = lambda record: None,
    is_stopped: IsStopped = lambda: False,
) -> dict[str, Any]:
    """Parse pages with drafts, and plainly; says of each region how much the draft had right."""
    draft_of, parser = make_drafter(drafter), PageParser(pair, settings)
    pages: list[dict[str, Any]] = []
    for page in islice(read_pages(path), MAX_PAGES):
        stop_if(is_stopped)
        if isinstance(page, BrokenPage):
            raise SoonerError(f"page {page.number} of '{path.name}' can't be read: {page.reason}")
        on_live({"kind": "race", "live": f"Page {page.number}: reading the draft ..."})
        if not pages:
            warm_up(parser, page)
        draft = None if draft_of is None else draft_of(page)
        drafting = 0.0 if draft is None else draft.seconds
        on_live({"kind": "race", "live": f"Page {page.number}: the model checks the draft ..."})
        parsed = parser(page, draft)
        parsed = replace(parsed, seconds={**parsed.seconds, "drafter": drafting})
        stop_if(is_stopped)
        on_live({"kind": "race", "live": f"Page {page.number}: the model alone ..."})
        compared = compare_plain(parser, page, parsed)
        last = parsed.last
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
                "seconds": [plain, plain / e2e] if e2e else None, "drafting": drafting,
                "steps": last.steps,
                "tokens": last.tokens, "mode": parsed.mode, "parity": compared["parity"],
                "drafter": parsed.drafter,
            }
        )  # fmt: skip
    words = (
        "A quick reader (OCR, or the text inside a PDF) writes a rough draft of the page. The big "
        "model follows the draft wherever it would have written the same, many words at a time, "
        "and corrects the rest. Colours say how much of each region came from the draft."
    )
    return {
        "version": VERSION, "kind": "pages", "title": path.name, "words": words,
        "is_toy": pair.miniature is not None, "pages": pages,
    }  # fmt: skip


def record_robot(
    policy: Policy,
    env: str,
    seed: int,
    on_live: OnRecord = lambda record: None,
    is_stopped: IsStopped = lambda: False,
) -> dict[str, Any]:
    """Returns film an episode plainly, strictly and within the policy's allowance."""
    bins = policy.allowance.bins
    allowed = bins if isinstance(bins, int) else max(bins)
    ways = (
        ("plain", "Plain", 0),
        ("strict", "Guessed, strictly checked", 0),
        ("relaxed", f"Guessed, up to {allowed} steps off are let pass", allowed),
    )
    lanes = []
    for method, name, tolerance in ways[: None if policy.head else 1]:
        on_live({"kind": "race", "live": f"The robot moves: {name.lower()} ..."})
        off: list[int] = []
        forwards: list[int] = []
        times: list[float] = []

        def note(actions: list[Any], off: list[int] = off, forwards: list[int] = forwards) -> None:
            stop_if(is_stopped)
            distance = actions[0].deviation
            off.append(0 if distance is None else int(max(distance.max_bins, default=0)))
            forwards.append(actions[0].stats.nfe)

        def decide(
            observations: list[Observation], method: str = method, times: list[float] = times
        ) -> list[Any]:
            began = time.perf_counter()
            actions = policy.act(observations, method=method)
            times.append(time.perf_counter() - began)
            return actions

        with tempfile.TemporaryDirectory() as folder:
            rollouts = run_rollouts(
                decide, env, episodes=1, seed=seed, batch=1, films=Path(folder), on_call=note,
            )  # fmt: skip
            episode = rollouts.episodes[0]
            film = base64.b64encode(episode.film.read_bytes()).decode() if episode.film else ""
        lanes.append(
            {
                "name": name, "tolerance": tolerance, "off": off, "success": episode.success,
                "steps": episode.steps, "calls": episode.calls, "seconds": rollouts.seconds,
                "decision": median(times),  # the first one pays for allocations
                "asked": sum(forwards) / max(len(forwards), 1),
                "film": f"data:video/mp4;base64,{film}",
            }
        )  # fmt: skip
    words = (
        "A robot's move is a handful of numbers, which the policy says one after the other. A "
        "small head guesses them all. Strictly checked, the move is the very same. For many tasks "
        "a neighbouring number does as well: within the green band a guess is let pass, so the "
        "policy is asked less often, and the move may differ by that much."
    )
    bundled = "robot" in miniatures.names() and str(miniatures.find("robot").target)
    if not policy.head:
        words += " This policy was loaded without a head (--draft names one), so it moves plainly."
    return {
        "version": VERSION, "kind": "robot", "title": env, "words": words, "tolerance": allowed,
        "is_toy": policy.name == bundled, "lanes": lanes,
    }  # fmt: skip


@dataclass(frozen=True)
class HeadView:
    """Says which head is shown, and on what it looks.

    Attributes:
        layer, head: from 0.
        frames: of the clip.
        clip: a video; `None` is a drawn one.
    """

    layer: int
    head: int
    frames: int
    clip: Path | None = None


def record_heads(
    pair: ModelPair,
    view: HeadView,
    tables: dict[tuple[int, int], list[HeadPattern]],
    on_live: OnRecord = lambda record: None,
    is_stopped: IsStopped = lambda: False,
) -> dict[str, Any]:
    """Returns one head's attention over a video: as it is, and within its pattern.

    Args:
        tables: searched patterns of a layer's heads by the layer and the frames of a clip, which is
            a drawn one (or, without the miniature's world, the first that was shown); filled here.
    """
    on_live({"kind": "race", "live": "Looking into the model ..."})
    layer, head, frames = view.layer, view.head, view.frames
    seen: list[States] = []
    with tempfile.TemporaryDirectory() as folder:
        small = miniatures.find("video") if "video" in miniatures.names() else None
        drawn = [
            generated_clip(Path(folder), frames, seed)
            for seed in (7, 8) if small is not None and "clip" in small.functions
        ]  # fmt: skip
        if not drawn and small is not None and small.sample is not None:
            drawn = [small.sample]
        clips = ([view.clip] if view.clip else drawn[:1]) + drawn[1:]
        if not clips:
            raise SoonerError("no clip given; upload one above")
        heat_map = attention_map(
            pair, SearchRequest((clips[0],), frames), layer, head, on_states=seen.append
        )
        stop_if(is_stopped)
        on_live({"kind": "race", "live": "Searching a pattern for every head of the layer ..."})
        if (layer, frames) not in tables:
            tables[layer, frames] = search_layer(pair, SearchRequest((clips[-1],), frames), layer)
        stop_if(is_stopped)
    patterns, states, weights = tables[layer, frames], seen[0], heat_map.weights
    pattern, layout = patterns[head], heat_map.layout
    keys = states.keys[head // states.group]
    mask = pattern.mask(layout, states.queries[head], keys, states.scale)  # [tokens, tokens]
    part = float((weights * mask).sum() / weights.sum())
    cost = float(mask.sum() / torch.ones_like(mask, dtype=torch.float).tril().sum())
    timed = measure(patterns, states, layout, backend_for(states.queries.device))
    images = [
        {"name": "As it is", "png": _coloured(weights),
         "about": "A row for each token, a column for each earlier one that it may look at; "
                  "bright is much."},
        {"name": f"What its pattern computes ({pattern.name})", "png": _coloured(weights * mask),
         "about": f"The pattern was searched on {'another clip' if len(clips) > 1 else 'a clip'}."},
    ]  # fmt: skip
    if isinstance(pattern, Grid):
        stride, phase = heat_map.grid
        order = torch.argsort((torch.arange(len(layout)) - phase) % stride, stable=True)
        images.insert(
            1,
            {"name": "Sorted by the video's grid", "png": _coloured(weights[order][:, order]),
             "about": f"The same numbers; tokens {stride} apart stand together now."},
        )  # fmt: skip
    words = (
        "This is about the time before the first word. A model compares every token of a long "
        "video with every earlier one, and most of that finds little. Many heads look along lines "
        "or a grid; only those pairs need to be computed. What is left out changes the reading a "
        "little, so results are marked approximate. Attention of this layer took "
        f"{_ms(timed.dense)} in full and {_ms(timed.seconds)} by its patterns."
    )
    if part < 2 * cost:
        words += " This head looks at a little of everything, so its pattern is worth little."
    if timed.relative > 1:
        words += (
            f" So {len(layout)} tokens gain nothing: finding and gathering the pairs takes longer "
            "than it saves. It is made for prompts of many thousands."
        )
    return {
        "version": VERSION, "kind": "heads", "title": f"layer {layer}, head {head}",
        "words": words, "images": images, "cost": cost, "part": part,
        "seconds": [timed.dense, timed.seconds], "tokens": len(layout),
        "is_toy": pair.miniature is not None,
        "where": f"Layer {layer}, head {head}, {len(layout)} tokens of {frames} frames.",
    }  # fmt: skip


def search_layer(pair: ModelPair, wish: SearchRequest, layer: int) -> list[HeadPattern]:
    """Returns patterns of one layer's heads, which `Search` finds for all layers; by
    counted pairs.
    """
    adapter, settings = adapt(pair.target.model), SearchSettings()
    sample, _ = read_sample(wish.files[0], pair, adapter, wish, settings, SearchCallbacks())
    seen: list[States] = []
    capture(
        adapter, sample.embed(),
        lambda number, states: seen.append(states) if number == layer else None,
    )  # fmt: skip
    states, queries = seen[0], settings.queries
    layout = sample.layout.to(states.queries.device)
    space = Space(len(layout.where()), settings.max_stride, settings.extended)
    tried, prices = space.patterns, torch.ones(len(space.patterns), dtype=torch.double)
    surveyed = survey(states, layout, tried, queries)
    types = shortlist(surveyed, tried, prices, space.target(layout), settings)
    trials = [trial(states, layout, kind, queries, CHECK_TURN) for kind in types]
    return decide(types, trials, settings)[0]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def _coloured(weights: torch.Tensor, side: int = 320) -> str:
    """Returns a map as a PNG; a pixel is the largest weight under it, on a logarithmic scale."""
    step = -(-len(weights) // side)
    short = -len(weights) % step
    padded = torch.nn.functional.pad(weights, (0, short, 0, short))
    small = torch.nn.functional.max_pool2d(padded[None, None], step)[0, 0].numpy()
    level = 1 + np.log10(np.maximum(small, 1e-4)) / 4
    return data_url(colormaps["magma"](level, bytes=True)[..., :3], kind="PNG")
