"""Where the predictions of a benchmark's pages are, and how they are called."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from sooner.errors import SoonerError
from sooner.tasks.parse.delivery import document_file, page_file

from . import ocean, olmocr
from .benchmark import Benchmark, BenchmarkPage
from .files import read_text, write_text

Texts = Mapping[str, Sequence[str]]
"""Predictions of each page by `BenchmarkPage.name`: one text or several; none is missing."""

REPEAT = re.compile(r"_repeat\d+")


def page_name(kind: str, place: PurePosixPath, number: int) -> PurePosixPath:
    """A page's file as the official scorer looks for it."""
    if kind == olmocr.NAME:
        return PurePosixPath(f"{place.with_suffix('')}_pg{number}_repeat1.md")
    return PurePosixPath(f"{place.with_suffix('')}.md")


def read_predictions(folder: str | Path, benchmark: Benchmark) -> Texts:
    """Markdown of a benchmark's pages.

    A page's file is called as the official scorer wants it, or as `sooner parse` writes it:
    `NAME/page-0001.md`, or `NAME.md` for a picture called `NAME`. Folders of the benchmark may be
    missing where names alone tell its documents apart.

    Raises:
        SoonerError: no folder, nothing of the benchmark in it, or a file that can't be read.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise SoonerError(f"folder of predictions '{folder}' does not exist; check the path")
    places = {sample.place for sample in benchmark.samples}
    names = Counter(place.name for place in places)
    predictions = {
        sample.name: [
            read_text(path) for path in _files(folder, sample, names[sample.place.name] == 1)
        ]
        for sample in benchmark.samples
    }
    if not any(predictions.values()):
        first_name = f"{benchmark.samples[0].name}.md"
        raise SoonerError(
            f"'{folder}' has no prediction of any of the {len(benchmark.samples)} pages of "
            f"{benchmark.kind}; the first would be '{first_name}'"
        )
    return predictions


def _files(folder: Path, sample: BenchmarkPage, is_only: bool) -> list[Path]:
    """Files of a page: all repeats of one naming, the official one first.

    Args:
        is_only: no other document has the same name without its folder.
    """
    ways = [(Path(sample.name), Path(sample.place))]
    if is_only:
        ways.append((Path(Path(sample.name).name), Path(sample.place.name)))
    for name, place in ways:
        repeats = _repeats(folder / name)
        if repeats:
            return repeats
        for path in _of_parse(folder / place, sample.number):
            if path.is_file():
                return [path]
    return []


def _repeats(name: Path) -> list[Path]:
    if not REPEAT.search(name.name):
        whole = name.with_name(f"{name.name}.md")
        return [whole] if whole.is_file() else []
    stem = REPEAT.sub("", name.name)
    if not name.parent.is_dir():
        return []
    pattern = re.compile(rf"{re.escape(stem)}_repeat\d+\.md")
    # A glob would read brackets in a name.
    return sorted(path for path in name.parent.iterdir() if pattern.fullmatch(path.name))


def _of_parse(place: Path, number: int) -> Iterator[Path]:
    yield page_file(place, number, "md")
    if place.suffix.lower() != ".pdf":
        yield document_file(place, "md")


def write_predictions(folder: Path, benchmark: Benchmark, texts: Texts) -> None:
    """Write predictions in the form that the official scorer takes; a missing one is empty.

    For Ocean-OCR-Bench, `document_en.json` and its like are lists of `{image, label, answer}` that
    its `doc_text_eval` reads; each page has its Markdown too.

    Raises:
        StorageError: a file can't be written.
    """
    for sample in benchmark.samples:
        name = page_name(benchmark.kind, sample.place, sample.number)
        repeats = texts.get(sample.name) or [""]
        for number, text in enumerate(repeats, start=1):
            path = str(folder / name).replace("_repeat1.md", f"_repeat{number}.md")
            write_text(Path(path), text)
    if benchmark.kind == ocean.NAME:
        _write_answers(folder, benchmark, texts)


def _write_answers(folder: Path, benchmark: Benchmark, texts: Texts) -> None:
    sets: dict[str, list[dict[str, str]]] = {}
    for sample in benchmark.samples:
        answers_of = texts.get(sample.name) or [""]
        answer = {"image": sample.place.name, "label": sample.truth, "answer": answers_of[0]}
        sets.setdefault(sample.groups["set"], []).append(answer)
    for name, answers in sets.items():
        text = json.dumps(answers, ensure_ascii=False, indent=1) + "\n"
        write_text(folder / f"{name}.json", text)
