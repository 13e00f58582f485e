"""The rate at which a trained reader says otherwise of a crop than of the page: the real epsilon.

`RegionNoise` has texts of regions differ from the page's at a rate that is set. What rate a model
has is measured here, on the bundled document miniature: it reads pages that it has never seen,
whole, and each of their regions cut out, both greedily by HF's own `generate`, and the words of
all crops are held against the words of the page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sooner import miniatures

from ...worlds.document import evaluate, render, world
from ...worlds.document.page import CELL, DrawnRegion
from ..intervals import quotient

Figures = dict[str, Any]
SEED = 90_126
"""Of pages that training and the miniature's card never draw."""
WORDS = (150, 400)
"""Pages have so many tokens of Markdown; the world's longest have about 250."""
LIMIT = 480
"""Most tokens of an answer."""
TIMES = 2
"""A crop's answer that is so many times longer than the region's text has run away."""


def measured_epsilon(pages: int, progress: Callable[[str], None] = print) -> Figures:
    """Read `pages` pages whole and by regions.

    Returns:
        `value`, edits of words between crops and page over the page's words, with its `interval`
        (bootstrap over pages); `page_wrong` and `crop_wrong`, the same against the truth;
        `runaway`, share of crops that ran away; `pages`, `regions`, and mean `tokens` of a page.
    """
    model, processor = evaluate.load(miniatures.find("document").target)
    rng = np.random.default_rng(SEED)
    apart: list[float] = []
    page_wrong: list[float] = []
    crop_wrong: list[float] = []
    words: list[float] = []
    regions = runaways = 0
    while len(words) < pages:
        page = world.sample_page(rng)
        if not WORDS[0] <= len(page.pieces) <= WORDS[1]:
            continue
        picture = render.rgb(render.vary(render.draw(page), rng))
        (whole,) = evaluate.parse(model, processor, [picture], LIMIT)
        crops = [cut(picture, region) for region in page.regions]
        said = [evaluate.parse(model, processor, [crop], LIMIT)[0] for crop in crops]
        runaways += sum(
            len(text.split()) > TIMES * len(region.text.split()) + 4
            for text, region in zip(said, page.regions, strict=True)
        )
        joined, truth = "\n\n".join(said).split(), page.markdown.split()
        apart.append(float(evaluate.distance(joined, whole.split())))
        page_wrong.append(float(evaluate.distance(whole.split(), truth)))
        crop_wrong.append(float(evaluate.distance(joined, truth)))
        words.append(float(len(truth)))
        regions += len(crops)
        progress(f"reader: page {len(words)} of {pages}")
    ones = [1.0] * pages
    return {
        **quotient((apart, ones), (words, ones), SEED),
        "page_wrong": sum(page_wrong) / sum(words),
        "crop_wrong": sum(crop_wrong) / sum(words),
        "runaway": runaways / regions,
        "pages": pages,
        "regions": regions,
        "tokens": sum(words) / pages,
    }


def cut(picture: np.ndarray, region: DrawnRegion) -> np.ndarray:
    """A region out of its page's picture, by whole visual tokens, six columns wide at least."""
    left, top, right, bottom = region.box
    columns = picture.shape[1] // CELL
    begin, end = left // CELL, min(-(-right // CELL), columns)
    if end - begin < 6:
        end = min(begin + 6, columns)
        begin = max(end - 6, 0)
    return picture[top:bottom, begin * CELL : end * CELL]
