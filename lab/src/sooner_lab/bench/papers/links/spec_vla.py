"""Spec-VLA."""

from __future__ import annotations

from .kinds import CHECKPOINTS, TRAINED, UNLIKE, Comparison, Key, Links, Reason

GOAL = "LIBERO-Goal"
TREE = "trees[tree=50 nodes, depth 5, top 8]"
WORLD = "our robot's world, not LIBERO"
TASKS = "3 tasks, paper's tree"
PLAIN = "arms[method=plain]"
QUANTISED = ("int8", "int4")
WEIGHTS = "3 tasks, r = 9, fp32 in bf16's row, a CPU"
UNPACKED = (
    "torchao has no quick kernel for these weights on a CPU: what unpacks them costs every "
    "forward alike, and the fewer forwards there are, the less of it is paid"
)
PUBLISHED = Reason(CHECKPOINTS, "OpenVLA fine-tuned on the suite, and LIBERO")
SHAPES = Reason(
    UNLIKE, "strict drafts trees here and relaxed chains; the paper's have one shape"
)  # fmt: skip
LINKS = Links(
    (
        Comparison("table 1", GOAL, "length", "round", "act", TRAINED, TASKS,
                   {"strict": f"{TREE}.strict", "relaxed": f"{TREE}.relaxed"}, only_order=WORLD),
        Comparison("table 1", GOAL, "speed-up", "decode", "act", TRAINED, TASKS,
                   {"autoregressive": f"{PLAIN}.decode_speedup",
                    "strict": f"{TREE}.strict_speedup", "relaxed": f"{TREE}.relaxed_speedup"},
                   only_order=WORLD,
                   why="a strict tree of many siblings holds the neighbours that a tolerance "
                       "would let pass"),
        Comparison("table 1", GOAL, "success", "success", "act", TRAINED,
                   "{loops[method=plain&env=all].episodes} episodes",
                   {"autoregressive": Key("loops[method=plain&env=all].success_rate", times=100),
                    "relaxed": Key("loops[method=relaxed r=9&env=all].success_rate", times=100)},
                   only_order=WORLD, why="too few episodes to tell such a difference"),
        Comparison("figure 4", "", "length", "round", "act", TRAINED, "3 tasks, chains of 6",
                   {"r = 0": "trees[tree=chain of 6].strict",
                    **{f"r = {one}": f"arms[method=relaxed r={one}].mean_acceptance_length"
                       for one in (1, 3, 5, 9, 15)}}),
        Comparison("table 5", GOAL, "speed-up", "decode", "act", TRAINED, WEIGHTS,
                   {"bf16": f"{PLAIN}.decode_speedup",
                    **{one: f"weights[weights={one}].plain_speed" for one in QUANTISED}},
                   only_order=WORLD, why=UNPACKED),
        Comparison("table 6", GOAL, "speed-up", "decode", "act", TRAINED, WEIGHTS,
                   {"bf16": "arms[method=relaxed r=9].decode_speedup",
                    **{one: f"weights[weights={one}].speedup" for one in QUANTISED}},
                   only_order=WORLD, why=UNPACKED),
    ),
    {
        "table 1": PUBLISHED,
        "table 2": PUBLISHED,
        f"table 2 / {GOAL}": SHAPES,
        "table 3": PUBLISHED,
        f"table 3 / {GOAL}": SHAPES,
        "table 5": PUBLISHED,
        "table 6": PUBLISHED,
    },
)  # fmt: skip
