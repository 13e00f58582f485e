"""Prompts to draw: MS-COCO's captions and PartiPrompts."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError
from sooner.tasks.imagine.files import ImagePrompt

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


def read_prompts(name: str, source: str | Path | None = None) -> Iterator[ImagePrompt]:
    """The prompts of data set `name` in its own order.

    Args:
        name: one of `PROMPT_SETS`.
        source: the data set's folder, or another hub id for it.

    Raises:
        SoonerError: it is not there, or its files are laid out in another way.
    """
    schema = PROMPT_SETS[name]
    for table in find_tables(schema, find_root(schema, source)):
        for number, record in enumerate(_records(table)):
            text = _text(schema, record, table)
            yield ImagePrompt(f"{schema.name}/{record.get('image_id', number)}", text)


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
        for caption in sorted(annotations, key=lambda caption: caption["id"]):
            first.setdefault(caption["image_id"], caption)
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


READERS: dict[str, Callable[..., Iterator[ImagePrompt]]] = dict.fromkeys(PROMPT_SETS, read_prompts)
"""Entry point of the group `sooner.prompts`."""
