"""Jobs of parsing into a folder, with a parser that needs no model."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from sooner.documents import Resolution, find_documents
from sooner.documents.drafters import PageDrafter
from sooner.tasks.parse import Delivery, ParseJob, ParseOutput
from sooner.tasks.parse.delivery import NAME
from sooner.tasks.parse.output import Intake
from tasks.drafting import EchoParser

SMALL = Intake(resolution=Resolution(dpi=72))


def job(source: Path, out: Path, drafter: PageDrafter | None = None, **options: Any) -> ParseJob:
    output = {"settings_hash": "s", "intake": SMALL, "delivery": Delivery(out, ("md", "json"))}
    for name in {field.name for field in fields(ParseOutput)} & options.keys():
        output[name] = options.pop(name)
    return ParseJob(
        documents=find_documents([source]), output=ParseOutput(**output), drafter=drafter, **options
    )


def run(source: Path, out: Path, drafter: PageDrafter | None = None, **options: Any) -> EchoParser:
    """A run of its own; the parser tells for which pages it was needed."""
    parser = EchoParser(options.pop("raising", None))
    job(source, out, drafter, **options).run(lambda: parser)
    return parser


def records(out: Path) -> dict[tuple[str, int], dict]:
    lines = (out / NAME).read_text().splitlines()
    entries = {(record["document"], record["page"]): record for record in map(json.loads, lines)}
    assert len(entries) == len(lines)  # one line a page
    return entries


def listing(folder: Path) -> list[str]:
    """Files of a folder, without what they are derived from."""
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return sorted(str(path) for path in files if path.parts[0] != ".sooner")
