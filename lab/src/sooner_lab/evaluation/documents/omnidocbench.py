"""OmniDocBench: pages with annotated blocks (Ouyang et al., 2025; version 1.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from sooner.errors import SoonerError

from .benchmark import Benchmark, BenchmarkPage
from .blocks import Kind
from .files import field_of, read_json

NAME = "omnidocbench"
ANNOTATIONS = "OmniDocBench*.json"
PICTURES = "images"
GROUPS = ("data_source", "language", "layout")
"""Attributes of pages that figures are told by."""

TEXTS = ("title", "text_block", "code_txt", "code_txt_caption", "reference", "list_group")

SCORED: Mapping[str, Kind] = {
    **dict.fromkeys(TEXTS, "text"),
    "equation_isolated": "formula",
    "table": "table",
}
READ = frozenset(
    {
        *("header", "footer", "page_number", "page_footnote", "abandon", "text_mask"),
        *("figure_caption", "figure_footnote", "table_caption", "table_footnote"),
        *("code_algorithm", "code_algorithm_caption", "equation_caption", "equation_explanation"),
    }
)
"""Categories whose text a prediction may have or not."""

FIELDS: Mapping[Kind, str] = {"text": "text", "formula": "latex", "table": "html"}


@dataclass(frozen=True)
class TrueBlock:
    """A block of a page.

    Attributes:
        kind: what it is.
        text: plain, LaTeX, or HTML.
        order: in which it is read; `None` for what has no place.
        is_scored: whether a prediction must have it.
        anno_id: its name on the page.
    """

    kind: Kind
    text: str
    order: int | None
    is_scored: bool
    anno_id: Any = None


def find(folder: Path) -> Path | None:
    """The annotations in a folder, or the file itself; `None` if there are none.

    Raises:
        SoonerError: several files of annotations.
    """
    if folder.is_file():
        return folder if folder.suffix == ".json" else None
    paths = sorted(folder.glob(ANNOTATIONS))
    if len(paths) > 1:
        names = ", ".join(path.name for path in paths)
        raise SoonerError(f"'{folder}' has {names}; give the file instead of the folder")
    return paths[0] if paths else None


def load(folder: Path) -> Benchmark:
    """Pages of a folder with `OmniDocBench.json` and `images/`.

    Raises:
        SoonerError: not of this layout.
    """
    path = find(folder)
    if path is None:
        raise SoonerError(
            f"'{folder}' has no OmniDocBench.json; it stands beside images/ in the dataset "
            "opendatalab/OmniDocBench"
        )
    pages = read_json(path)
    if not isinstance(pages, list) or not pages:
        raise SoonerError(f"'{path}' has no list of pages; the layout is not the published one")
    samples = [_sample(page, f"'{path}', page {n}", path.parent) for n, page in enumerate(pages, 1)]
    twice = [
        name for name, count in Counter(sample.name for sample in samples).items() if count > 1
    ]
    if twice:
        raise SoonerError(f"'{path}': several pages are called '{twice[0]}'")
    formulas = sum(b.kind == "formula" and b.is_scored for sample in samples for b in sample.truth)
    left_out = {"CDM of displayed formulas, by its own tool": formulas} if formulas else {}
    return Benchmark(NAME, path.parent, tuple(samples), left_out)


def _sample(page: Any, place: str, folder: Path) -> BenchmarkPage:
    info = field_of(page, "page_info", dict, place)
    name = Path(field_of(info, "image_path", str, place)).name
    attributes = info.get("page_attribute") or {}
    groups = {
        label: str(attributes[label]) for label in GROUPS if attributes.get(label) is not None
    }
    picture = folder / PICTURES / name
    if not picture.is_file() and (folder / name).is_file():
        picture = folder / name
    return BenchmarkPage(
        Path(name).stem, PurePosixPath(name), picture, 1, true_blocks(page, place), groups
    )


def true_blocks(page: Mapping[str, Any], place: str = "page") -> list[TrueBlock]:
    """Blocks of a page in reading order, those without a place last.

    Text that the page's layout cut in two (`truncated`) is one block, at the place of the first.

    Raises:
        SoonerError: not of this layout.
    """
    blocks = list(_blocks(field_of(page, "layout_dets", list, place), place))
    relations = (page.get("extra") or {}).get("relation") or []
    cut = [
        (relation.get("source_anno_id"), relation.get("target_anno_id"))
        for relation in relations
        if isinstance(relation, dict) and relation.get("relation_type") == "truncated"
    ]
    blocks.sort(key=lambda block: (block.order is None, block.order or 0))
    return _whole(blocks, cut)


def _blocks(detections: list[Any], place: str) -> Iterator[TrueBlock]:
    for number, detection in enumerate(detections):
        category = field_of(detection, "category_type", str, f"{place}, block {number}")
        kind = SCORED.get(category, "text")
        if category not in SCORED and category not in READ:
            continue  # pictures, and masks of what can't be read
        text = detection.get(FIELDS[kind])
        text = "".join(text) if isinstance(text, list) else text
        if isinstance(text, str) and text.strip():
            order = detection.get("order")
            is_scored = category in SCORED and not detection.get("ignore")
            yield TrueBlock(
                kind,
                text,
                order if isinstance(order, int) else None,
                is_scored,
                detection.get("anno_id"),
            )


def _whole(blocks: list[TrueBlock], cut: list[tuple[Any, Any]]) -> list[TrueBlock]:
    """Texts that are one put together, at the place of the first part."""
    of = {block.anno_id: [n] for n, block in enumerate(blocks) if block.kind == "text"}
    for source, target in cut:
        first, second = of.get(source), of.get(target)
        if first is None or second is None or first is second:
            continue
        first += second
        of.update({blocks[n].anno_id: first for n in second})
    parts = {min(group): sorted(group) for group in of.values()}
    inner = {n for group in parts.values() for n in group} - set(parts)
    return [
        replace(block, text=" ".join(blocks[part].text for part in parts.get(n, [n])))
        for n, block in enumerate(blocks)
        if n not in inner
    ]
