"""Records of the other tasks: pictures, pages, a robot."""

from __future__ import annotations

import base64
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

from .. import miniatures
from ..documents import BrokenPage, read_pages
from ..errors import SoonerError
from ..tasks.act.observation import Observation
from ..tasks.act.policy import Policy
from ..tasks.act.rollout import run_rollouts
from ..tasks.imagine import DrawCallbacks, ImagineSettings, imagine
from ..tasks.imagine.batch import DrawingProgress
from ..tasks.imagine.drawing_model import DrawingModel
from ..tasks.loading import ModelPair
from ..tasks.parse.comparison import compare_plain, warm_up
from ..tasks.parse.drafters import make_drafter
from ..tasks.parse.parser import PageParser
from ..tasks.parse.settings import ParseSettings
from ..tasks.round_records import stop_if
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
            drawn.append(progress.codes(0))

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
