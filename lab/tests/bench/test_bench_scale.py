"""`sooner bench scale`: figures and goals from runs, a process's seconds, the page, a tiny run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sooner.errors import SoonerError
from sooner_lab.bench.report import markdown
from sooner_lab.bench.scale import run as whole
from sooner_lab.bench.scale.command import ProcessWatch, digest_of
from sooner_lab.bench.scale.run import arm_rows, goals, ratios
from sooner_lab.bench.scale.settings import ScaleBenchSettings

EACH, START = 1.25, {"plain-1": 9.0, "plain-2": 10.0, "ray-1": 30.0, "ray-2": 31.0}
RATE = {"plain-1": 1 / EACH, "plain-2": 1.9 / EACH, "ray-1": 0.9 / EACH, "ray-2": 1.6 / EACH}


def made(arm: str, pages: int, repeat: int = 0, late: float = 0.0, digest: str = "") -> dict:
    return {
        "arm": arm, "pages": pages, "repeat": repeat,
        "seconds": START[arm] + pages / RATE[arm] + late, "cpu": {"command": pages + 1.0},
        "bench_cpu": 0.5, "starved": 2.0 if arm.startswith("ray") else None,
        "digest": digest or f"of {pages}",
    }  # fmt: skip


def test_rates_and_starts_come_apart() -> None:
    runs = [made(arm, pages) for arm in START for pages in (8, 64)]
    rows = {row["arm"]: row for row in arm_rows(runs)}
    for arm, row in rows.items():
        assert row["rate"] == pytest.approx(RATE[arm])
        assert row["start"] == pytest.approx(START[arm])
    by_arm = {(item["what"], item["arm"]): item["value"] for item in ratios(list(rows.values()))}
    assert by_arm["speedup", "plain-2"] == pytest.approx(1.9)
    assert by_arm["speedup", "ray-2"] == pytest.approx(1.6 / 0.9)
    assert by_arm["overhead", "ray-1"] == pytest.approx(1 / 0.9 - 1)
    runs += [made("plain-1", 64, 1, 20.0), made("plain-1", 64, 2, 10.0)]
    (row,) = (item for item in arm_rows(runs) if item["arm"] == "plain-1")
    assert row["runs"] == 3
    assert row["rate"] == pytest.approx(56 / (56 * EACH + 10))
    assert row["low"] < row["rate"] < row["high"]
    assert arm_rows([made("plain-1", 8)]) == []


class Clockwork:
    """Takes the place of `run_arm`: runs take what they take by `RATE`, and records are written."""

    def __init__(self) -> None:
        self.order: list[tuple[str, int]] = []

    def __call__(self, name: str, documents: Path, out: Path, *_: Any) -> dict[str, Any]:
        pages = int(documents.name)
        self.order.append((name, pages))
        assert len(list(documents.glob("*.pdf"))) == pages // 2
        out.mkdir()
        seconds = {"read": 0.05, "drafter": 0.5, "prefill": 0.2, "decode": 0.7, "write": 0.05}
        line = f'{{"status": "SUCCESS", "truncated": null, "seconds": {seconds}}}\n'
        (out / "manifest.jsonl").write_text(line.replace("'", '"') * pages)
        figures = made(name, pages)
        labels = ("arm", "pages", "repeat")
        return {key: value for key, value in figures.items() if key not in labels}


def test_runs_are_added_in_turns_and_compared_with_predictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clockwork()
    monkeypatch.setattr(whole, "run_arm", clock)
    monkeypatch.setattr(whole, "_cores", lambda count: [0, 1])
    settings = ScaleBenchSettings(pages=12, short=4)
    first = whole.run(settings, progress=lambda line: None)
    result = whole.run(replace(settings, short=0), progress=lambda line: None, before=first)
    arms = [*START]
    expected = [(arm, 4) for arm in arms] + [(arm, 12) for arm in (*arms, *reversed(arms))]
    assert clock.order == expected
    assert len(result["runs"]) == 12
    predicted = {item["arm"]: item for item in result["predictions"]}
    assert predicted["plain-2"]["predicted"] == pytest.approx(2 / EACH, rel=0.01)
    assert predicted["plain-2"]["error"] == pytest.approx(2 / 1.9 - 1, abs=0.01)
    met = {item["goal"]: item["met"] for item in result["goals"]}
    assert [*met.values()] == [True, True, True, True, False, True]  # ray-2 is off by 25 %
    page = markdown(result, "scale.json")
    assert "| plain-2: pages a second over plain-1 | at least 1.7 | 1.9 | met |" in page
    assert "Some runs are of" in page
    with pytest.raises(SoonerError, match="has pages 12, and this run 16"):
        whole.run(ScaleBenchSettings(pages=16), progress=lambda line: None, before=first)


def test_a_different_output_breaks_its_goal() -> None:
    runs = [made("plain-1", 4), made("plain-2", 4), made("plain-1", 8)]
    for more, is_met in (([], True), ([made("plain-2", 8, digest="another")], False)):
        assert goals({"runs": runs + more, "ratios": [], "predictions": []})[0]["met"] == is_met


def test_a_digest_is_of_results_and_not_of_records(tmp_path: Path) -> None:
    for name in ("a.md", "sub/b.json", "manifest.jsonl", ".sooner/pages/x.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    before = digest_of(tmp_path)
    (tmp_path / "manifest.jsonl").write_text("times")
    (tmp_path / ".sooner/pages/x.json").write_text("times")
    assert digest_of(tmp_path) == before
    (tmp_path / "sub/b.json").write_text("text")
    assert digest_of(tmp_path) != before


def test_processes_are_watched_with_what_they_start() -> None:
    turn = "import time\nend = time.process_time() + 0.7\nwhile time.process_time() < end: pass\n"
    code = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {turn!r}])\n"
    process = subprocess.Popen([sys.executable, "-c", code + "import time; time.sleep(1)"])
    watch = ProcessWatch([process.pid, os.getpid() + 2**20])  # the second is not there
    process.wait()
    time.sleep(0.1)
    watch.stop()
    assert watch.by_kind()["ocr"] >= 0.2  # whatever it starts beside Ray is its drafter
    assert "command" in watch.by_kind()
