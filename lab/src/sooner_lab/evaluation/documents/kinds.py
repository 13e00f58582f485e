"""The benchmarks that can be read, and which one a folder holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sooner.checks import check_choice
from sooner.errors import SoonerError

from . import ocean, olmocr, omnidocbench, page_score
from .benchmark import Benchmark, BenchmarkPage, Figure


@dataclass(frozen=True)
class BenchmarkKind:
    """How a benchmark is read and scored.

    Attributes:
        title: for people.
        detect: whether a folder holds it.
        load: reads it.
        score: figures of a page, of which there are texts.
        metrics: what each means.
        mean_of: labels whose mean is the official aggregate, if it is not that of all figures.
        official: what the official scorer does that this one does not.
    """

    title: str
    detect: Callable[[Path], object]
    load: Callable[[Path], Benchmark]
    score: Callable[[BenchmarkPage, Sequence[str]], list[Figure]]
    metrics: Mapping[str, str]
    official: str
    mean_of: str | None = None


KINDS: Mapping[str, BenchmarkKind] = {
    omnidocbench.NAME: BenchmarkKind(
        "OmniDocBench",
        omnidocbench.find,
        omnidocbench.load,
        page_score.score_page,
        page_score.METRICS,
        "not official figures: blocks are matched and normalised more simply, and formulas are "
        "scored by edit distance; for CDM and the overall score run the official scorer on the "
        "predictions",
    ),
    olmocr.NAME: BenchmarkKind(
        "olmOCR-Bench",
        olmocr.find,
        olmocr.load,
        olmocr.score_page,
        olmocr.METRICS,
        "not official figures: tests of formulas render them in a browser and are left out; for "
        "them and the overall score run the official scorer on the predictions",
        mean_of="file",
    ),
    ocean.NAME: BenchmarkKind(
        "Ocean-OCR-Bench",
        ocean.find,
        ocean.load,
        ocean.score_page,
        ocean.METRICS,
        "not official figures: Chinese is cut into characters (there by jieba), BLEU is "
        "sacrebleu's (there nltk's), and METEOR knows no synonyms",
    ),
}


def kind_of(benchmark: Benchmark) -> BenchmarkKind:
    return KINDS[benchmark.kind]


def load(folder: str | Path, kind: str | None = None) -> Benchmark:
    """The benchmark in a folder.

    Args:
        folder: as it was published.
        kind: one of `KINDS`; by default what its files say.

    Raises:
        SoonerError: no such folder or kind, none or several benchmarks in it, or files of another
            layout.
    """
    folder = Path(folder)
    if kind is not None:
        check_choice("benchmark", kind, KINDS)
    if not folder.exists():
        raise SoonerError(f"folder '{folder}' does not exist; check the path")
    return KINDS[kind or recognised(folder)].load(folder)


def recognised(folder: Path) -> str:
    """Name of the benchmark that a folder holds.

    Raises:
        SoonerError: none of them, or several.
    """
    names = [name for name, kind in KINDS.items() if kind.detect(folder)]
    if len(names) > 1:
        raise SoonerError(f"'{folder}' may be {' or '.join(names)}; say which with --benchmark")
    if not names:
        raise SoonerError(
            f"'{folder}' holds no known benchmark: no OmniDocBench.json, no *.jsonl of "
            "olmOCR-Bench, no document_*.json of Ocean-OCR-Bench"
        )
    return names[0]
