"""MMInference."""

from __future__ import annotations

from .kinds import (
    CHECKPOINTS,
    PLANTED,
    TRAINED,
    Comparison,
    Links,
    Reason,
)

LENGTH = "4k tokens here, 1M there"
PUBLISHED = Reason(CHECKPOINTS, "the model, and its benchmarks of video")
LINKS = Links(
    (
        Comparison("figure 10", "", "speed-up", "prefill", "prefill", TRAINED, "4,076 tokens",
                   {"full attention": "model_rows[tokens=4076&method=dense].speedup",
                    "MMInference": "model_rows[tokens=4076&method=ours].speedup"},
                   only_order=LENGTH),
        Comparison("figure 12", "", "recall", "recall", "prefill", TRAINED, "one clip",
                   {"on video": "regions.claims[0].here", "on text": "regions.claims[0].beside"},
                   why="not so on this model; its cause is not examined"),
        Comparison("figure 16", "", "speed-up", "layer", "prefill", PLANTED, "4,096 tokens",
                   {"FlashAttention": "layer[tokens=4096&method=dense].speedup",
                    "grid": "layer[tokens=4096&method=grid].speedup"}, only_order=LENGTH),
        Comparison("figure 16", "", "which is faster", "layer", "prefill", PLANTED,
                   "4,096 tokens",
                   {"vertical-slash": "layer[tokens=4096&method=vertical-slash].speedup",
                    "grid": "layer[tokens=4096&method=grid].speedup"}),
    ),
    {
        "table 1": PUBLISHED,
        "table 4": PUBLISHED,
        "figure 2": Reason(CHECKPOINTS, "the model, at 128k tokens"),
        "figure 5": Reason(CHECKPOINTS, "a model that reads 1M tokens"),
        "figure 13": Reason(CHECKPOINTS, "a model that reads 1M tokens"),
        "figure 14": Reason(CHECKPOINTS, "a model that reads 1M tokens"),
    },
)  # fmt: skip
