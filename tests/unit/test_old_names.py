"""Names of 0.1 are refused with the new one, and records of 0.1 keep their hash."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sooner
from sooner.cli.main import main
from sooner.tasks.imagine.settings import ImagineSettings
from sooner.tasks.parse.settings import ParseSettings
from sooner.tasks.settings import CaptionSettings


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sooner.Speculative(None, max_window=4), "'max_window' is now 'max_draft_tokens'"),
        (lambda: sooner.ParallelVLM(None, least=4), "'least' is now 'min_visual'"),
        (lambda: sooner.HSD([], tolerance=0.7), "HSD: 'tolerance' is now 'acceptance_threshold'"),
        (lambda: ParseSettings(tolerance=0.7), "'tolerance' is now 'acceptance_threshold'"),
        (lambda: ImagineSettings(window=4), "'window' is now 'jacobi_window'"),
        (lambda: CaptionSettings(window=4), "'window' is now 'num_draft_tokens'"),
    ],
)
def test_options_are_refused_with_the_new_name(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(sooner.SoonerError, match=message):
        make()


def test_flags_are_refused_with_the_new_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["parse", "a.pdf", "--tolerance", "0.7"])
    assert left.value.code == 2
    line = "sooner: --tolerance is now --acceptance-threshold (see --help)\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("settings", "digest"),
    [
        (CaptionSettings(num_draft_tokens=3), "6247b518e64b82a4"),
        (ImagineSettings(jacobi_window=16), "48c47754b6ecc3c5"),
    ],
    ids=["caption", "imagine"],
)
def test_records_of_0_1_keep_their_hash(settings: Any, digest: str) -> None:
    """The digests are those that 0.1 computed of the same settings under their old names."""
    assert settings.digest("m") == digest
