"""Shares of CPUs that never make Ray wait without a word, and machines that differ are refused."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")

from sooner.errors import SoonerError
from sooner.ray.nodes import CPUS, SPARE, Resources, compare, gpus_of_actors

HERE = {"Python": "3.11.7", "torch": "2.11", "'/data'": "a folder"}


def nodes(*cpus: float, gpus: float = 0.0) -> list[Resources]:
    return [{"CPU": count, "GPU": gpus} for count in cpus]


@pytest.mark.parametrize("cpus", [[1], [2], [4], [16], [1, 1], [2, 2], [1, 4, 16]])
def test_all_actors_find_room_and_reading_has_some(cpus: list[int]) -> None:
    assert gpus_of_actors(nodes(*cpus), 2 * len(cpus), "--actors") == 0
    assert sum(cpus) - CPUS * 2 * len(cpus) >= SPARE * len(cpus) - 1e-9
    assert gpus_of_actors(nodes(*cpus, gpus=9), 2, "--replicas") == 1
    assert gpus_of_actors(nodes(*cpus, gpus=9), 2, "", needs_gpu=False) == 0


@pytest.mark.parametrize(
    ("machines", "actors", "message"),
    [
        (nodes(2), 10, "10 actors need 2 CPUs or more, .* at most 9 with --actors"),
        (nodes(8, gpus=1), 2, "2 models need a GPU each, and the cluster has 1"),
        (nodes(0), 1, "has 0"),
    ],
)
def test_too_many_are_refused_with_the_way_out(
    machines: list[Resources], actors: int, message: str
) -> None:
    with pytest.raises(SoonerError, match=message):
        gpus_of_actors(machines, actors, "--actors")


@pytest.mark.parametrize(
    ("differs", "message"),
    [
        ({"torch": "2.10"}, "node 'b:1' has torch 2.10, and this one has 2.11; make them the same"),
        ({"'/data'": "missing"}, "node 'b:1' has '/data' missing, and this one has a folder; make"),
    ],
)
def test_a_difference_names_the_node_and_both_values(differs: dict[str, str], message: str) -> None:
    compare(HERE, {"a:1": HERE})
    with pytest.raises(SoonerError, match=message):
        compare(HERE, {"a:1": HERE, "b:1": {**HERE, **differs}})
