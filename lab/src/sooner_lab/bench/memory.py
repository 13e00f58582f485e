"""Peak memory of an arm, measured in a process of its own that loads only what the arm needs."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .caption_settings import BenchSettings

SLACK = 0.05
"""Share of plain decoding's peak that speculation may cost beyond the draft itself."""


def memory_figures(file: Path, settings: BenchSettings) -> dict[str, Any]:
    """Peak bytes of plain and speculative decoding, and what the draft accounts for.

    Returns:
        `plain_bytes`, `speculative_bytes`, `draft_bytes` (weights and cache), `budget_bytes`
        (plain + draft + 5 %) and `within_budget`. On CPU a peak is the process's resident set.
    """
    plain = _measured(file, settings, "plain")
    speculative = _measured(file, settings, "speculative")
    draft = speculative["draft_weights"] + speculative["draft_cache"]
    budget = plain["peak"] * (1 + SLACK) + draft
    return {
        "plain_bytes": plain["peak"],
        "speculative_bytes": speculative["peak"],
        "draft_bytes": draft,
        "budget_bytes": int(budget),
        "within_budget": speculative["peak"] <= budget,
    }


def _measured(file: Path, settings: BenchSettings, arm: str) -> dict[str, int]:
    request = {
        "file": str(file),
        "arm": arm,
        "model": settings.model,
        "draft": settings.draft,
        "device": settings.device,
        "dtype": settings.dtype,
        "num_draft_tokens": settings.num_draft_tokens,
        "max_new_tokens": settings.max_new_tokens,
        "threads": torch.get_num_threads(),
    }
    command = [sys.executable, "-m", "sooner_lab.bench.memory", json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"memory run of '{arm}' failed: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout.splitlines()[-1])


def peak(request: dict[str, Any]) -> dict[str, int]:
    """Run one arm once in this process and return its peak and the draft's share, in bytes."""
    from sooner.generation import generate
    from sooner.methods import Autoregressive, Speculative
    from sooner.tasks.clip import prepare
    from sooner.tasks.loading import load_pair
    from sooner.tasks.settings import CaptionSettings

    torch.set_num_threads(request["threads"])
    is_plain = request["arm"] == "plain"
    pair = load_pair(
        request["model"], request["draft"], device=request["device"], dtype=request["dtype"]
    )
    draft = pair.draft
    if is_plain:
        pair, draft = replace(pair, draft=None), None
    clip = prepare(Path(request["file"]), pair, CaptionSettings(method=request["arm"]))
    method: Any = Autoregressive()
    if draft is not None:
        method = Speculative(
            draft.model, request["num_draft_tokens"], draft_inputs=clip.draft_inputs
        )
    made = generate(
        pair.target.model,
        clip.inputs,
        method,
        max_new_tokens=request["max_new_tokens"],
        do_sample=False,
    )
    return {
        "peak": _peak_bytes(pair.target.model.device),
        "draft_weights": 0 if draft is None else draft.model.get_memory_footprint(),
        "draft_cache": made.stats.draft_cache_bytes,
    }


def _peak_bytes(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would include what the parent held when it forked
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else 1024 * used


if __name__ == "__main__":
    print(json.dumps(peak(json.loads(sys.argv[1]))))
