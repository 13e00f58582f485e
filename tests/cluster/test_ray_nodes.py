"""Machines that differ are refused before a model is loaded."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")

from sooner.errors import SoonerError
from sooner.ray.nodes import GONE, compare

HERE = {"Python": "3.11.7", "torch": "2.11", "'/data'": "a folder"}


@pytest.mark.parametrize(
    ("differs", "message"),
    [
        ({"torch": "2.10"}, "node 'b:1' has torch 2.10, and this one has 2.11; make them the same"),
        ({"'/data'": GONE}, "node 'b:1' can't see '/data'; put it where every node sees it"),
    ],
)
def test_a_difference_names_the_node_and_both_values(differs: dict[str, str], message: str) -> None:
    compare(HERE, {"a:1": HERE})
    with pytest.raises(SoonerError, match=message):
        compare(HERE, {"a:1": HERE, "b:1": {**HERE, **differs}})
