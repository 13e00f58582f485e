"""How many nodes are verified: by made-up costs, never by this machine's clock."""

from __future__ import annotations

from sooner.methods.aligned.nodes import FLOOR, MeasuredNodes
from sooner.methods.aligned.prior import Experience


class Clock:
    """A target whose forward takes `seconds(tokens)`; tells how long decoding took."""

    def __init__(self, slope: float, largest: int = 64) -> None:
        self.slope = slope
        self.experience = Experience()
        self.count = MeasuredNodes(largest, self.experience)
        self.chosen: list[int] = []
        self.total = 0.0

    def seconds(self, tokens: int) -> float:
        return 1.0 + self.slope * (tokens - 1)

    def round(self, chances: list[list[float]], stall: float = 1.0) -> int:
        nodes = self.count.choose(chances)
        cut = min(nodes, max(map(len, chances)))
        seconds = stall * self.seconds(len(chances) * (1 + cut))
        self.count.observe(len(chances), cut, seconds)
        self.total += seconds
        self.chosen.append(cut)
        return cut


def chain(chance: float, nodes: int = 64) -> list[float]:
    return [max(chance**depth, FLOOR) for depth in range(1, nodes + 1)]


def test_good_drafts_are_verified_in_the_best_size() -> None:
    for slope in (0.0, 0.01, 0.05, 0.3):
        clock = Clock(slope)
        for _ in range(200):
            clock.round([chain(0.9)])
        speeds = {
            size: (1 + sum(chain(0.9)[:size])) / clock.seconds(1 + size)
            for size in (0, *clock.count.sizes)
        }
        usual = sorted(clock.chosen[-60:])[30]
        assert speeds[usual] >= 0.97 * max(speeds.values()), (slope, usual)


class FullDevice(Clock):
    """A target for which up to 16 tokens of a forward, of all rows together, cost the same."""

    def seconds(self, tokens: int) -> float:
        return max(1.0, tokens / 16)


def test_drafting_goes_off_where_the_rows_alone_fill_the_device() -> None:
    """What pays for one row loses beside others; rows come and go, and both are remembered."""
    clock = FullDevice(0.0)
    chosen: dict[int, list[int]] = {1: [], 16: []}
    for turn in range(1200):
        rows = 1 if turn // 20 % 2 else 16
        chosen[rows].append(clock.round([chain(0.5, 16) for _ in range(rows)]))
    alone, full = chosen[1][20:], chosen[16][20:]
    assert sum(nodes > 2 for nodes in alone) > 0.9 * len(alone)
    assert full.count(0) > 0.9 * len(full)
    tokens = sum(1 + sum(chain(0.5, 16)[:nodes]) for nodes in full)
    seconds = sum(clock.seconds(16 * (1 + nodes)) for nodes in full)
    assert tokens / seconds >= 0.97, "the speed, with plain decoding's as 1"
