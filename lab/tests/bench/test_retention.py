"""Pruners at one retention."""

from __future__ import annotations

import pytest

from sooner.sparse.pruning import Pruner
from sooner_lab.bench.retention import PRUNERS, for_retention, retention


@pytest.mark.parametrize("layers", [22, 28, 32, 80])
@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.parametrize("kind", PRUNERS.values(), ids=lambda kind: kind.name)
def test_every_pruner_keeps_the_requested_share(
    kind: type[Pruner], share: float, layers: int
) -> None:
    """Table 2 holds all at one retention."""
    pruner = for_retention(kind(), share, layers)
    assert retention(pruner, layers) == pytest.approx(share, abs=1e-6)
    pruner.check_depth(layers)
    assert len(pruner.stages(layers)) == len(kind().stages(layers))
    assert list(pruner.stages(layers)) <= list(kind().stages(layers))
