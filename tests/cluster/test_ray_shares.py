"""What each stage may take, so that Ray never waits for room without a word."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")

from sooner.errors import SoonerError
from sooner.ray.shares import SPARE, RayNode, Shares


@pytest.mark.parametrize("cpus", [[1], [2], [4], [16], [1, 1], [2, 2], [1, 4, 16]])
def test_all_actors_find_room_and_reading_has_some(cpus: list[int]) -> None:
    nodes = [RayNode(str(number), count) for number, count in enumerate(cpus)]
    shares = Shares.plan(nodes)
    assert shares.parsers == len(cpus)
    left = sum(cpus) - shares.heavy * (shares.parsers + shares.drafters)
    assert left >= SPARE * len(cpus) - 1e-9


@pytest.mark.parametrize(
    ("nodes", "parsers", "message"),
    [
        ([RayNode("one", 2)], 9, "9 parsers and 9 drafters need 3.6 CPUs .* has 2, .* --actors"),
        ([RayNode("one", 8, 1)], 2, "2 parsers need a GPU each, and the cluster has 1"),
        ([RayNode("one", 0)], 1, "has 0"),
    ],
)
def test_too_many_are_refused_with_the_way_out(
    nodes: list[RayNode], parsers: int, message: str
) -> None:
    with pytest.raises(SoonerError, match=message):
        Shares.plan(nodes, parsers)
