"""What `sooner bench act` is to reach; fixed before any result."""

from __future__ import annotations

from ..goals import goal
from ..run import Data


def goals(result: Data) -> list[Data]:
    """Return a row for each goal that was measured."""
    arms = {row["method"]: row for row in result.get("arms") or []}
    chosen = f"relaxed r={result['settings']['chosen']}"
    rows = []
    for name, method, bound in (
        (f"{chosen} (chains)", chosen, 1.42),
        ("strict (trees)", "strict", 1.15),
    ):
        arm = arms.get(method, {})
        if "decode_speedup" in arm:
            rows.append(goal(f"decoding, {name} over plain", bound, arm["decode_speedup"]))
            rows.append(goal(f"whole action, {name} over plain", None, arm["e2e_speedup"]))
    loops = {row["method"]: row for row in result.get("loops") or [] if row["env"] == "all"}
    if "plain" in loops and chosen in loops:
        low = loops["plain"]["interval"][0]
        name = f"success of {chosen}, plain's interval beginning at {low:.2f}"
        rows.append(goal(name, low, loops[chosen]["success_rate"]))
    return rows
