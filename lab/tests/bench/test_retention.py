"""Pruners at one retention."""

from __future__ import annotations

import pytest

from sooner.sparse.pruning import Pruner
from sooner_lab.bench.retention import PRUNERS, decode_retention, for_retention, retention
from sooner_lab.rivals.dycoke import DyCoke


@pytest.mark.parametrize("layers", [22, 28, 32, 80])
@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("kind", PRUNERS.values(), ids=lambda kind: kind.name)
def test_every_pruner_keeps_the_requested_share(
    kind: type[Pruner], share: float, layers: int
) -> None:
    """Table 2 holds all at one retention; DyCoke reaches 10 % by what it lays aside in decoding."""
    pruner = for_retention(kind(), share, layers)
    assert decode_retention(pruner, layers) == pytest.approx(share, abs=1e-6)
    if share == 0.1 and kind is DyCoke:
        assert retention(pruner, layers) == pytest.approx(0.25)
    else:
        expected = pytest.approx(decode_retention(pruner, layers), rel=0.7)
        assert retention(pruner, layers) == expected
    pruner.check_depth(layers)
    assert len(pruner.stages(layers)) == len(kind().stages(layers))
    assert list(pruner.stages(layers)) <= list(kind().stages(layers))
