"""What 0.1 called otherwise: refused with the new name, and still read where 0.1 wrote it."""

from __future__ import annotations

import copy
import importlib.util
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import sooner
from sooner.cli.imagine_jobs import summary_lines
from sooner.cli.main import main
from sooner.errors import RENAMED, new_name, under_old_names
from sooner.tasks.imagine.settings import ImagineSettings
from sooner.tasks.parse.settings import ParseSettings
from sooner.tasks.settings import CaptionSettings


def lab(*values: Any) -> Any:
    """A case that needs the commands of the lab."""
    missing = importlib.util.find_spec("sooner_lab") is None
    return pytest.param(*values, marks=pytest.mark.skipif(missing, reason="needs the lab"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sooner.Speculative(None, window=4), "Speculative: 'window' is now 'num_draft_t"),
        (lambda: sooner.Speculative(None, max_window=4), "'max_window' is now 'max_draft_tokens'"),
        (lambda: sooner.ParallelVLM(None, least=4), "'least' is now 'min_visual'"),
        (lambda: sooner.CoupledJacobi(window=4), "'window' is now 'jacobi_window'"),
        (lambda: ImagineSettings(window=4), "'window' is now 'jacobi_window'"),
        (lambda: sooner.HSD([], window=4), "HSD: 'window' is now 'reference_window'"),
        (lambda: ParseSettings(window=4), "'window' is now 'reference_window'"),
        (lambda: sooner.HSD([], tolerance=0.7), "HSD: 'tolerance' is now 'acceptance_threshold'"),
        (lambda: ParseSettings(tolerance=0.7), "'tolerance' is now 'acceptance_threshold'"),
        (lambda: CaptionSettings(window=4), "'window' is now 'num_draft_tokens'"),
        (lambda: CaptionSettings.from_dict({"window": 4}), "'window' is now 'num_draft_tokens'"),
    ],
)
def test_options_are_refused_with_the_new_name(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(sooner.SoonerError, match=message):
        make()


def test_options_that_never_were_are_refused_as_ever() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'windo'"):
        sooner.PromptLookup(windo=4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["caption", "clip.mp4", "--window", "4"], "--window is now --num-draft-tokens"),
        (["imagine", "a boat", "--window", "4"], "--window is now --jacobi-window"),
        lab(["bench", "imagine", "--windows", "4"], "--windows is now --jacobi-windows"),
        lab(["predict", "--largest-window", "4"], "--largest-window is now --max-draft-tokens"),
        (["parse", "a.pdf", "--tolerance", "0.7"], "--tolerance is now --acceptance-threshold"),
    ],
)
def test_flags_are_refused_with_the_new_name(
    arguments: Sequence[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == 2
    assert capsys.readouterr().err == f"sooner: {message} (see --help)\n"


@pytest.mark.parametrize(
    ("settings", "digest"),
    [
        (CaptionSettings(num_draft_tokens=3), "6247b518e64b82a4"),
        (ImagineSettings(jacobi_window=16), "48c47754b6ecc3c5"),
    ],
    ids=["caption", "imagine"],
)
def test_records_of_0_1_keep_their_hash(settings: Any, digest: str) -> None:
    """The digests that 0.1 computed of the same settings under their old names."""
    assert settings.digest("m") == digest


def test_the_table_is_read_both_ways() -> None:
    assert under_old_names({"num_draft_tokens": 1, "other": 2}) == {"window": 1, "other": 2}
    for old, names in RENAMED.items():
        for name in names:
            assert new_name(old, ["other", name]) == name
        assert new_name(old, [old, *names]) is None  # it is known by that name


def test_a_picture_of_0_1_is_summed_up_with_its_window() -> None:
    record = {"method": "jacobi", "mode": "exact", "seed": 7, "finish": "stopped", "tokens": 8,
              "nfe": 3, "coupling": "gumbel"}  # fmt: skip
    ((new, _),) = summary_lines({**record, "jacobi_window": 16})
    ((old, _),) = summary_lines({**record, "window": 16})
    assert new == old
    assert "method: jacobi (gumbel, 16)" in new


def test_methods_are_copied_and_pickled_without_their_options() -> None:
    method = sooner.PromptLookup(num_draft_tokens=3)
    assert pickle.loads(pickle.dumps(method)) == copy.deepcopy(method) == method
