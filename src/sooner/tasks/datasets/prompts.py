"""Prompts to draw: a text file, MS-COCO's captions, or PartiPrompts."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ...errors import SoonerError, unknown
from .loading import find_root
from .schemas import Schema
from .tables import find_tables, read_parquet

PROMPT_SETS = {
    schema.name: schema
    for schema in (
        Schema(
            name="coco-captions",
            hub="phiyodr/coco2017",
            tables=("captions_val2017.json", "captions_val2014.json", "validation-*.parquet"),
            videos=(),
            columns=("captions", "caption", "sentences_raw"),
        ),
        Schema(
            name="parti-prompts",
            hub="nateraw/parti-prompts",
            tables=("PartiPrompts.tsv", "*.parquet"),
            videos=(),
            columns=("Prompt",),
        ),
    )
}
"""`columns` name the prompt; MS-COCO's own JSON and the hub's parquet are both read."""


@dataclass(frozen=True)
class Prompt:
    """What is to be drawn.

    Attributes:
        id: where it stands, such as `coco-captions/139` or `wishes.txt/3`.
        text: the prompt.
    """

    id: str
    text: str


def load_prompts(
    name: str | Path, source: str | Path | None = None, limit: int | None = None
) -> list[Prompt]:
    """The prompts of a file or of a dataset, in its own order.

    Args:
        name: a text file with one prompt a line, or one of `PROMPT_SETS`.
        source: a dataset's folder, or another hub id for it.
        limit: at most so many.

    Raises:
        SoonerError: no such file or dataset, or nothing in it; limits below 1.
    """
    if limit is not None and limit < 1:
        raise SoonerError(f"limit is {limit}; it must be a whole number of 1 or more")
    path = Path(name)
    if path.is_file():
        found: Iterable[Prompt] = _lines(path)
    elif str(name) in PROMPT_SETS:
        found = _dataset(PROMPT_SETS[str(name)], source)
    elif path.suffix or len(path.parts) > 1:
        raise SoonerError(f"prompt file '{name}' does not exist; check the path")
    else:
        raise unknown("prompt set", str(name), PROMPT_SETS)
    prompts = list(islice(found, limit))
    if not prompts:
        raise SoonerError(f"'{name}' holds no prompts; give a text file with one prompt a line")
    return prompts


def _lines(path: Path) -> Iterator[Prompt]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SoonerError(f"prompt file '{path}' can't be read as text ({error})") from error
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield Prompt(f"{path.name}/{number}", line.strip())


def _dataset(schema: Schema, source: str | Path | None) -> Iterator[Prompt]:
    for table in find_tables(schema, find_root(schema, source)):
        for number, record in enumerate(_records(table)):
            text = _text(schema, record, table)
            yield Prompt(f"{schema.name}/{record.get('image_id', number)}", text)


def _records(table: Path) -> Iterator[dict[str, Any]]:
    if table.suffix == ".parquet":
        yield from map(dict, read_parquet(table))
    elif table.suffix == ".tsv":
        with open(table, encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file, delimiter="\t")
    else:
        yield from _first_captions(table)


def _first_captions(table: Path) -> list[dict[str, Any]]:
    """MS-COCO tells five captions of each picture; evaluations draw one, the first."""
    try:
        annotations = json.loads(table.read_text(encoding="utf-8"))["annotations"]
        first: dict[int, dict[str, Any]] = {}
        for one in sorted(annotations, key=lambda one: one["id"]):
            first.setdefault(one["image_id"], one)
    except (ValueError, KeyError, TypeError) as error:
        raise SoonerError(
            f"'{table}' is not MS-COCO's captions ({error}); fetch it again"
        ) from None
    return [first[image] for image in sorted(first)]


def _text(schema: Schema, record: dict[str, Any], table: Path) -> str:
    for column in schema.columns:
        value = record.get(column)
        value = value[0] if isinstance(value, list) and value else value
        if isinstance(value, str) and value.strip():
            return value.strip()
    raise SoonerError(
        f"{schema.name}: '{table}' has a record with the columns "
        f"{', '.join(sorted(map(str, record)))}, but a prompt stands in "
        f"{' or '.join(schema.columns)}; is it another dataset?"
    )
