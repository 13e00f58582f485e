"""Plain decoding beside parsing: the same text is told as such, another one claims nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from sooner.cli.display import comparison
from sooner.cli.main import app
from sooner.documents import Page
from sooner.tasks.parse import PageParser, ParsedPage, ParseSettings, contexts
from sooner.tasks.parse.comparison import compare_plain
from sooner.tasks.parse.contexts import cut
from tasks.parsing import draft_of, noise_page, qwen3_vl

PLAIN = ParsedPage(
    "a.png", 1, raw="one two three", seconds={"processor": 0.5, "prefill": 1.5, "decode": 8.0}
)
PARSED = replace(
    PLAIN, seconds={"drafter": 2.0, "processor": 0.5, "prefill": 1.5, "decode": 1.0, "e2e": 99.0}
)


def against(plain: ParsedPage, parsed: ParsedPage) -> dict[str, Any]:
    return compare_plain(cast(PageParser, lambda page: plain), cast(Page, None), parsed)


def test_speed_is_decoding_and_everything() -> None:
    compared = against(PLAIN, PARSED)
    assert compared["parity"] == "identical"
    assert compared["decode_speedup"] == pytest.approx(8.0)
    assert compared["e2e_speedup"] == pytest.approx(2.0)  # the drafter counts, waiting does not


def test_another_text_claims_no_speed() -> None:
    compared = against(PLAIN, replace(PARSED, raw="one twenty"))
    assert compared["parity"] == "differs from letter 6 on"
    assert compared["decode_speedup"] is None
    line, style = comparison({**compared, "mode": "exact"})
    assert "no speed-up is claimed" in line
    assert style == "bold red"


def test_both_arms_count_their_crops_and_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    slow: Any = lambda *args: time.sleep(0.2) or cut(*args)  # noqa: E731
    monkeypatch.setattr(contexts, "cut", slow)  # of crops, and of the page
    page, settings = noise_page(), ParseSettings(stages="both", max_new_tokens=8)
    parsed = PageParser(qwen3_vl(), settings)(page, draft_of(page, "w1 w2 " * 20))
    assert parsed.seconds["processor"] >= 0.4


@pytest.mark.lab
@pytest.mark.slow
def test_the_bundled_page_by_command(tmp_path: Path) -> None:
    words = ["parse", "--sample", "--compare", "--drafter", "none", "-o", str(tmp_path)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert "# man red special never" in result.output
    assert "parity: identical" in result.output
