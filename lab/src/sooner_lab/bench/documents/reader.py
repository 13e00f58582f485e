"""The rate at which a trained reader says otherwise of a crop than of the page: the real epsilon.

`RegionNoise` has texts of regions differ from the page's at a rate that is set. What rate a model
has is measured here: it reads pages that it has never seen, whole, and each of their regions cut
out, both greedily by HF's own `generate`, and the words of all crops are held against the words of
the page. The reader is `sooner train miniature document --part reader`, whose pages have 250 to 400
tokens; without one, the bundled miniature on its own shorter pages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sooner import miniatures
from sooner.errors import SoonerError

from ...worlds.document import evaluate, render, world
from ...worlds.document.page import CELL, DrawnRegion
from ...worlds.document.recipe import LARGE
from ..intervals import quotient

Figures = dict[str, Any]
SEED = 90_126
"""Of pages that training and the miniature's card never draw."""
TOKENS = {world.PAGE: (150, 250), LARGE: (250, 400)}
"""Pages of a size that are read have so many tokens of Markdown."""
TIMES = 2
"""A crop's answer that is so many times longer than the region's text has run away."""


def measured_epsilon(
    pages: int, reader: Path | None = None, progress: Callable[[str], None] = print
) -> Figures:
    """Read `pages` pages whole and by regions.

    Args:
        reader: checkpoint folder of a reader of large pages; `None` is the bundled miniature.

    Returns:
        `value`, edits of words between crops and page over the page's words, with its `interval`
        (bootstrap over pages); `page_wrong` and `crop_wrong`, the same against the truth;
        `runaway`, share of crops that ran away; `reader`; `pages`, `regions`, and of a page mean
        `words` and `tokens` of Markdown.

    Raises:
        SoonerError: there is no checkpoint in `reader`.
    """
    if reader is not None and not (reader / "config.json").is_file():
        raise SoonerError(
            f"'{reader}' has no config.json; train a reader: sooner train miniature document "
            "--part reader --out DIR, and give DIR/reader/checkpoint"
        )
    size = world.PAGE if reader is None else LARGE
    least, most = TOKENS[size]
    model, processor = evaluate.load(reader or miniatures.find("document").target)
    rng = np.random.default_rng(SEED)
    apart: list[float] = []
    page_wrong: list[float] = []
    crop_wrong: list[float] = []
    words: list[float] = []
    regions = runaways = tokens = 0
    while len(words) < pages:
        page = world.sample_page(rng, *size)
        if not least <= len(page.pieces) <= most:
            continue
        picture = render.rgb(render.vary(render.draw(page), rng))
        (whole,) = evaluate.parse(model, processor, [picture])
        crops = [cut(picture, region) for region in page.regions]
        said = [evaluate.parse(model, processor, [crop])[0] for crop in crops]
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
        tokens += len(page.pieces)
        progress(f"reader: page {len(words)} of {pages}")
    ones = [1.0] * pages
    return {
        **quotient((apart, ones), (words, ones), SEED),
        "page_wrong": sum(page_wrong) / sum(words),
        "crop_wrong": sum(crop_wrong) / sum(words),
        "runaway": runaways / regions,
        "reader": "reader" if reader else "miniature",
        "pages": pages,
        "regions": regions,
        "words": sum(words) / pages,
        "tokens": tokens / pages,
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
