"""Ocean-OCR-Bench: pictures of documents, in two languages, with their text (Chen et al., 2025)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from sooner.errors import SoonerError

from ..metrics import bleu, edit_distance, meteor, overlap
from .benchmark import Benchmark, BenchmarkPage, Figure
from .files import field_of, read_json

NAME = "ocean-ocr-bench"
DATA = "OCR_eval_data"
SETS = "document_*.json"
SUBSETS = re.compile(r"(?:handwritten|scene).*\.json")

METRICS: Mapping[str, str] = {
    "edit": "edit distance, mean of pages (lower is better)",
    "f1": "F1 of the sets of words, mean of pages (higher is better)",
    "precision": "precision of the same (higher is better)",
    "recall": "recall of the same (higher is better)",
    "bleu": "BLEU, mean of pages (higher is better)",
    "meteor": "METEOR without synonyms, mean of pages (higher is better)",
}


def root(folder: Path) -> Path:
    """Where the sets are: `OCR_eval_data/` of the repository, or the folder itself."""
    return folder / DATA if (folder / DATA).is_dir() else folder


def find(folder: Path) -> list[Path]:
    """The files of the document sets."""
    return sorted(root(folder).glob(SETS)) if folder.is_dir() else []


def load(folder: Path) -> Benchmark:
    """Pages of `OCR_eval_data/` with `document_en.json`, `document_zh.json` and their folders.

    Raises:
        SoonerError: not of this layout.
    """
    sets = find(folder)
    if not sets:
        raise SoonerError(
            f"'{folder}' has no document_en.json or document_zh.json; they are in {DATA}/ of the "
            "repository guoxy25/Ocean-OCR"
        )
    samples = [sample for path in sets for sample in _samples(path)]
    unknown = [path for path in root(folder).glob("*.json") if SUBSETS.fullmatch(path.name)]
    left_out = {
        f"{path.stem}, which is no document set": len(read_json(path)) for path in sorted(unknown)
    }
    return Benchmark(NAME, folder, tuple(samples), left_out)


def _samples(path: Path) -> list[BenchmarkPage]:
    records = read_json(path)
    if not isinstance(records, list) or not records:
        raise SoonerError(f"'{path}' has no list of pictures; the layout is not the published one")
    return [_sample(record, path, f"'{path}', picture {n}") for n, record in enumerate(records, 1)]


def _sample(record: Any, path: Path, place: str) -> BenchmarkPage:
    picture = PurePosixPath(path.stem) / Path(field_of(record, "image", str, place)).name
    turns = field_of(record, "conversations", list, place)
    if len(turns) < 2:
        raise SoonerError(f"{place}: no answer in 'conversations'")
    return BenchmarkPage(
        name=str(picture.with_suffix("")),
        place=picture,
        source=path.parent / picture,
        number=1,
        truth=field_of(turns[1], "value", str, place),
        groups={"set": path.stem},
    )


def score_page(sample: BenchmarkPage, texts: Sequence[str]) -> list[Figure]:
    """All metrics on the texts as they are, as the official scorer takes them.

    Args:
        sample: whose truth is a text.
        texts: the prediction, of which the first counts; none is an empty one.

    Raises:
        SoonerError: a library is not installed.
    """
    predicted, true = (texts[0] if texts else "").strip(), sample.truth.strip()
    words = overlap(predicted, true)
    values = {
        "edit": edit_distance(predicted, true),
        "f1": words.f1,
        "precision": words.precision,
        "recall": words.recall,
        "bleu": bleu(predicted, true),
        "meteor": meteor(predicted, true),
    }
    return [Figure(name, value, sample.groups) for name, value in values.items()]
