"""What a drawing's record says, in lines for a person."""

from __future__ import annotations

from typing import Any

SECONDS = ("video", "vision", "prefill", "draft", "verify", "other", "pixels")


def summary_lines(record: dict[str, Any]) -> list[tuple[str, str]]:
    """`(line, style)` of a record's summary."""
    how = f"method: {record['method']}"
    known = [str(record[name]) for name in ("coupling", "window") if record.get(name) is not None]
    how += f" ({', '.join(known)})" if known else ""
    told = f"mode: {record['mode']}, seed: {record['seed']}"
    if record["finish"] != "whole":
        return [(f"  {record['tokens']} codes, NFE {record['nfe']}, {how}, {told}", "")]
    pictures = f" ({record['count']} at once)" if record["count"] > 1 else ""
    seconds = record["seconds"]
    return [
        (
            f"  {record['tokens']} codes{pictures}, NFE {record['nfe']}, step compression "
            f"{record['step_compression']:.2f}x, {record['tokens_per_second']:.0f} codes/s, "
            f"{sum(seconds.values()):.2f} s",
            "",
        ),
        (f"  {how}, {told}", ""),
        *_comparison(record),
        (
            "  seconds: "
            + ", ".join(f"{name} {seconds[name]:.2f}" for name in SECONDS if name in seconds),
            "dim",
        ),
    ]


def _comparison(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Speed-up, and what can be said of sameness, if it was drawn plainly too."""
    if "plain" not in record:
        return []
    plain, parity = record["plain"], record["parity"]
    if parity is None:
        said = "other draws of the same distribution, so not the same one"
        said = said if record["mode"] == "exact" else "of another distribution: not exact"
        style = ""
    else:
        said, style = (
            f"parity: {parity['verdict']}",
            {"identical": "bold green"}.get(parity["verdict"], "bold red"),
        )
    if record["draw_speedup"] is None:
        return [(f"  {said} (code {parity['divergence']}); no speed-up is claimed", style)]
    return [
        (
            f"  speed-up: {record['draw_speedup']:.2f}x (plain: NFE {plain['nfe']}, "
            f"{sum(plain['seconds'].values()):.2f} s), {said}",
            style,
        )
    ]
