"""What `sooner bench act` is to reach; fixed before any result."""

from __future__ import annotations

from dataclasses import asdict

from ..goals import goal
from ..run import Data
from .trees import PAPER


def goals(result: Data) -> list[Data]:
    """Return a row for each goal that was measured."""
    arms = {row["method"]: row for row in result.get("arms") or []}
    chosen = f"relaxed r={result['settings']['chosen']}"
    rows = [
        goal(
            f"acceptance length, {chosen} over strict, both on the paper's tree ({PAPER})",
            1.44,
            row["ratio"],
        )
        for row in result.get("trees") or []
        if all(row[name] == value for name, value in asdict(PAPER).items())
    ]
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
