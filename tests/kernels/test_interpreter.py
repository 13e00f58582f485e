"""The tests of kernels, run in a process of their own under Triton's interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

HERE = Path(__file__).parent
FILES = sorted(path.stem for path in HERE.glob("test_kernel_*.py"))


def run_files(report: Path, lane: str) -> dict[str, list[ElementTree.Element]]:
    """The cases of each file, once those of a lane have run."""
    files = [str(HERE / f"{name}.py") for name in FILES]
    options = ["-q", "-p", "no:cacheprovider", "-m", lane, f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )
    assert report.exists(), done.stdout + done.stderr
    results: dict[str, list[ElementTree.Element]] = {name: [] for name in FILES}
    for case in ElementTree.parse(report).iter("testcase"):
        results[str(case.get("classname")).rsplit(".", 1)[-1]].append(case)
    return results


def failures(cases: list[ElementTree.Element]) -> list[str]:
    return [
        f"{case.get('name')}: {bad.get('message')}"
        for case in cases
        for kind in ("failure", "error", "skipped")
        for bad in case.iter(kind)
    ]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[ElementTree.Element]]:
    return run_files(tmp_path_factory.mktemp("kernels") / "report.xml", "not slow")


@pytest.mark.parametrize("file", FILES)
def test_kernels_hold_under_the_interpreter(
    file: str, outcome: dict[str, list[ElementTree.Element]]
) -> None:
    assert outcome[file], "no test has run"
    assert not failures(outcome[file])


@pytest.mark.slow
def test_slow_cases_hold_under_the_interpreter(tmp_path: Path) -> None:
    cases = [
        case for cases in run_files(tmp_path / "report.xml", "slow").values() for case in cases
    ]
    assert cases, "no test has run"
    assert not failures(cases)
