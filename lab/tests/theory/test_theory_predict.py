"""Predictions: methods, sources, the command line; and that nothing heavy is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from sooner.errors import SoonerError
from sooner_lab.cli import predict as command
from sooner_lab.theory import Agreement, PredictedPair, StepCosts, from_paper, predict

PAIR = PredictedPair(
    "pair", StepCosts(0.42, 0.0466), Agreement.even(0.872, 12_000), 512, 44.23, 7.92
)


def by_method(pair: PredictedPair) -> dict[str, Any]:
    return {row.method: row for row in predict(pair).rows}


def test_methods_and_windows() -> None:
    rows = by_method(PAIR)
    assert list(rows) == ["plain", "vanilla", "parallel", "free-running"]
    assert rows["plain"].decode_speedup == 1
    assert rows["parallel"].num_draft_tokens == 9  # eq. 6
    assert rows["parallel"].decode_speedup == pytest.approx(3.50, abs=0.03)
    assert rows["parallel"].decode_speedup > rows["vanilla"].decode_speedup
    assert rows["plain"].tokens_per_second == pytest.approx(1 / 0.42)


def test_e2e_hides_the_draft_prefill_only_in_parallel() -> None:
    rows = by_method(PAIR)
    assert rows["plain"].e2e_seconds == pytest.approx(44.23 + 512 * 0.42)
    for method, prefill in (("vanilla", 44.23 + 7.92), ("parallel", 44.23)):
        decode = 512 / rows[method].tokens_per_second
        assert rows[method].e2e_seconds == pytest.approx(prefill + decode)
    assert by_method(replace(PAIR, target_prefill=None))["plain"].e2e_speedup is None


def test_recommendations() -> None:
    best = predict(PAIR, largest=9).best
    assert (best.method, best.num_draft_tokens, best.placement) == ("parallel", 9, "process")
    hopeless = replace(PAIR, agreement=Agreement.even(0.05, 12_000))
    assert predict(replace(hopeless, costs=StepCosts(1.0, 0.9)), largest=4).best.method == "plain"
    far = replace(
        PAIR, costs=StepCosts(0.42, 0.0466, transfer=0.3)
    )  # meeting each round costs more
    assert predict(far, largest=9).best.method == "free-running"


@pytest.fixture
def run() -> Callable[..., Any]:
    app = typer.Typer()
    app.callback()(lambda: None)
    command.register(app)
    return lambda *arguments: CliRunner().invoke(app, ["predict", *map(str, arguments)])


EXPLICIT = ("--target-ms", 20, "--draft-ms", 2, "--max-draft-tokens", 10)


def test_json_to_stdout_and_file(run: Callable[..., Any], tmp_path: Path) -> None:
    made = run(*EXPLICIT, "--run-length", 4, "--target-prefill-ms", 100, "--json", "-")
    report = json.loads(made.output)
    assert report["speed_ratio"] == 10
    assert report["acceptance"] == pytest.approx(0.8, abs=1e-3)
    assert all(row["e2e_speedup"] >= 1 for row in report["methods"])
    file = tmp_path / "p.json"
    run(*EXPLICIT, "--run-length", 4, "--target-prefill-ms", 100, "--json", file)
    assert json.loads(file.read_text()) == report


def test_a_pair_of_the_paper_with_a_figure_replaced(run: Callable[..., Any]) -> None:
    plain = json.loads(run("--paper", "llava-ov-7b-72b", "--json", "-").output)
    assert from_paper("llava-ov-7b-72b").target_prefill == 44.23
    assert plain["recommended"] == {
        "method": "parallel",
        "num_draft_tokens": 9,
        "placement": "process",
    }
    slow = json.loads(run("--paper", "llava-ov-7b-72b", "--draft-ms", 78.3, "--json", "-").output)
    assert slow["target_ms"] == plain["target_ms"] == 420
    assert slow["methods"][2]["decode_speedup"] < plain["methods"][2]["decode_speedup"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "missing --target-ms, --draft-ms, --acceptance or --run-length; "),
        (("--target-ms", 20, "--acceptance", 0.5), "missing --draft-ms; "),
        ((*EXPLICIT, "--acceptance", 0.5, "--run-length", 3), "both --acceptance and --run-length"),
        ((*EXPLICIT, "--acceptance", 2), "acceptance rate is 2"),
        (("--target-ms", -1, "--draft-ms", 2, "--acceptance", 0.5), "target step takes"),
        ((*EXPLICIT, "--acceptance", 0.5, "--target-extra-ms", -1), "--target-extra-ms is -1"),
        (("--paper", "nope"), "unknown pair 'nope'"),
        (("--paper", "llava-ov-7b-7b", "--target-extra-ms", 1), "needs --target-ms"),
        ((*EXPLICIT, "--acceptance", 0.5, "--max-draft-tokens", 0), "max_draft_tokens is 0"),
        ((*EXPLICIT, "--acceptance", 0.5, "--json", "/proc/nowhere/x.json"), "can't write"),
    ],
)
def test_errors_are_a_single_line(run: Callable[..., Any], arguments: Any, message: str) -> None:
    made = run(*arguments)
    assert isinstance(made.exception, SoonerError)
    assert message in str(made.exception)
    assert "\n" not in str(made.exception)


def test_neither_torch_nor_numpy_is_loaded() -> None:
    code = (
        "import sys, typer\n"
        "from sooner_lab.cli import predict\n"
        "app = typer.Typer(); app.callback()(lambda: None); predict.register(app)\n"
        "run = typer.main.get_command(app).main\n"
        "run(['predict', '--help'], standalone_mode=False)\n"
        "asked = 'predict --paper llava-ov-7b-7b --max-draft-tokens 4'.split()\n"
        "run(asked, standalone_mode=False)\n"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
