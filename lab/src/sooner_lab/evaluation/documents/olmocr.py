"""olmOCR-Bench: unit tests of pages of PDFs (Poznanski et al., 2025)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from sooner.checks import check_whole
from sooner.errors import SoonerError

from .benchmark import Benchmark, BenchmarkPage, Figure
from .files import field_of, read_lines
from .unit_tests import NEEDED, TESTS

NAME = "olmocr-bench"
DATA, PDFS = "bench_data", "pdfs"
BASELINE = "baseline"

METRICS: Mapping[str, str] = {"passed": "share of unit tests that pass (higher is better)"}


def root(folder: Path) -> Path:
    """Where the tests are: `bench_data/` of the dataset, or the folder itself."""
    return folder / DATA if (folder / DATA).is_dir() else folder


def find(folder: Path) -> list[Path]:
    """The files of tests."""
    return sorted(root(folder).glob("*.jsonl")) if folder.is_dir() else []


def load(folder: Path) -> Benchmark:
    """Pages of a folder with `*.jsonl` and `pdfs/`, each with its tests.

    A PDF without a baseline test gets one about its first page, as in the official scorer.

    Raises:
        SoonerError: not of this layout.
    """
    files = find(folder)
    if not files:
        raise SoonerError(
            f"'{folder}' has no *.jsonl of unit tests; they are in {DATA}/ of the dataset "
            "allenai/olmOCR-bench, beside pdfs/"
        )
    tests, left_out = _tests(files)
    if not tests:
        raise SoonerError(f"'{folder}' has no unit test that can be run here")
    folder = root(folder)
    samples = [_sample(folder, pdf, page, tests[pdf, page]) for pdf, page in sorted(tests)]
    return Benchmark(NAME, folder, tuple(samples), left_out)


Tests = dict[tuple[str, int], list[dict[str, Any]]]


def _tests(files: Sequence[Path]) -> tuple[Tests, dict[str, int]]:
    """Tests by PDF and page, and how many of which type are not run."""
    tests: Tests = defaultdict(list)
    left_out: Counter[str] = Counter()
    with_baseline: dict[str, bool] = {}
    for path in files:
        for place, record in read_lines(path):
            pdf = field_of(record, "pdf", str, place)
            page, kind = field_of(record, "page", int, place), field_of(record, "type", str, place)
            is_baseline = kind == BASELINE
            with_baseline[pdf] = with_baseline.get(pdf, False) or is_baseline
            if kind not in TESTS:
                left_out[f"{kind} tests"] += 1
                tests[pdf, page] += []  # its page is parsed, for the official scorer
                continue
            _check(record, kind, place)
            tests[pdf, page].append({**record, "file": path.stem})
    for pdf, has_baseline in with_baseline.items():
        if not has_baseline:
            tests[pdf, 1].append({"type": BASELINE, "file": BASELINE})
    return tests, dict(left_out)


def _check(record: Mapping[str, Any], kind: str, place: str) -> None:
    for name in NEEDED[kind]:
        if not field_of(record, name, str, place).strip():
            raise SoonerError(f"{place}: '{name}' is empty; the layout is not the published one")
    check_whole(f"{place}: max_diffs", record.get("max_diffs", 0), 0)


def _sample(folder: Path, pdf: str, page: int, tests: list[dict[str, Any]]) -> BenchmarkPage:
    place = PurePosixPath(pdf)
    if place.is_absolute() or ".." in place.parts:
        raise SoonerError(f"'{folder}' names '{pdf}', which is not within its {PDFS}/")
    return BenchmarkPage(
        name=f"{place.with_suffix('')}_pg{page}_repeat1",
        place=place,
        source=folder / PDFS / pdf,
        number=page,
        truth=tests,
    )


def score_page(sample: BenchmarkPage, texts: Sequence[str]) -> list[Figure]:
    """Each test of a page: 1 if more than half of the repeats pass it, else 0.

    Args:
        sample: whose truth is a list of tests.
        texts: the prediction's repeats; none is an empty one.

    Raises:
        SoonerError: a library is not installed.
    """
    repeats = texts or [""]
    figures = []
    for test in sample.truth:
        passes = sum(TESTS[test["type"]](test, text) for text in repeats)
        groups = {"file": test["file"], "test": test["type"]}
        name = str(test.get("id", ""))
        figures.append(Figure("passed", float(2 * passes > len(repeats)), groups, name))
    return figures
