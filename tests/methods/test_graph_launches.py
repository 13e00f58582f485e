"""What a round launches beside its graphs: a gate. Steps, draft models, heads and block drafters
are recorded; the choices between them are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import sooner
import tiny
from method_matrix import METHODS, reference
from recorders import StandIn
from sooner.engine.graphs.recorder import Run

pytestmark = pytest.mark.slow

FREE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach",
        "_unsafe_view", "lift_fresh", "alias"}  # fmt: skip
"""Operations that launch nothing, beside views."""


class Launches(TorchDispatchMode):
    """Counts operations that a GPU would be sent one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.is_on = 0, True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if self.is_on and not func.is_view and func.namespace != "prim" and name not in FREE:
            self.count += 1
        return func(*args, **(kwargs or {}))

    @contextmanager
    def within(self) -> Iterator[None]:
        """What one graph launches."""
        self.is_on = False
        try:
            yield
        finally:
            self.is_on = True


class Graphed(StandIn):
    """A recorder whose graphs count as one launch each, which is sent with their inputs."""

    def __init__(self, launches: Launches) -> None:
        super().__init__()
        self.launches = launches

    def warm_up(self, run: Run) -> None:
        with self.launches.within():
            super().warm_up(run)

    def record(self, run: Run, tensors: Sequence[Tensor]) -> Any:
        with self.launches.within():
            replay = super().record(run, tensors)

        def launch(*args: Any) -> None:
            self.launches.count += 1
            with self.launches.within():
                replay(*args)

        return launch


def of_a_round(name: str, graphs: bool) -> float:
    """Launches of a late round."""
    family, counts = "llama", []
    with Launches() as launches:
        made = sooner.generate(
            tiny.model(family), tiny.inputs(family, "text", 1), METHODS[name](family),
            max_new_tokens=48, eos_token_id=None, do_sample=False,
            graphs=Graphed(launches) if graphs else "off",
            on_tokens=lambda *_: counts.append(launches.count),
        )  # fmt: skip
    assert torch.equal(made.sequences, reference(family, "text", 1, 48))
    late = counts[len(counts) // 2 :]
    return (late[-1] - late[0]) / (len(late) - 1)


MAX_LAUNCHES = {"plain": 8, "noisy-4": 45, "eagle": 45, "eagle3": 45, "dflash": 40}
"""Launches, where without graphs there are 138 to 702."""


@pytest.mark.parametrize("name", MAX_LAUNCHES)
def test_a_round_launches_little_outside_its_graphs(name: str) -> None:
    eager, graphed = of_a_round(name, graphs=False), of_a_round(name, graphs=True)
    assert graphed <= MAX_LAUNCHES[name]
    assert graphed < eager / 2
