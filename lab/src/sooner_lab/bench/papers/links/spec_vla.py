"""Spec-VLA."""

from __future__ import annotations

from .kinds import CHECKPOINTS, TRAINED, Comparison, Links, Reason

GOAL = "LIBERO-Goal"
TREE = "trees[tree=50 nodes, depth 5, top 8]"
WORLD = "our robot's world, not LIBERO"
TASKS = "3 tasks, paper's tree"
PLAIN = "arms[method=plain]"
ARM_WORLD = "our arm's world (robosuite), not LIBERO"
RELAXED_STARTS = "goals[goal=success at r=9]"
ON_ARM = "{acceptance.moments} moments, paper's tree"
QUANTISED = ("int8", "int4")
WEIGHTS = "3 tasks, r = 9, fp32 in bf16's row, a CPU"
UNPACKED = (
    "torchao has no quick kernel for these weights on a CPU: what unpacks them costs every "
    "forward alike, and the fewer forwards there are, the less of it is paid"
)
LONGER = (
    "a strict round of our tree accepts two drafts most often, the paper's none: relaxed rounds "
    "gain at both ends"
)
PUBLISHED = Reason(CHECKPOINTS, "OpenVLA fine-tuned on the suite, and LIBERO")


def _arm(field: str) -> dict[str, str]:
    """Strict and relaxed figures of the arm's head, of drafts of the paper's tree."""
    pattern = "acceptance.arms[draft=head&shape=paper's tree&tolerance={r}].{field}"
    return {
        "strict": pattern.format(r=0, field=field), "relaxed": pattern.format(r=9, field=field)
    }  # fmt: skip


LINKS = Links(
    (
        Comparison("table 1", GOAL, "length", "round", "arm", TRAINED, ON_ARM,
                   _arm("mean_acceptance_length"), only_order=ARM_WORLD),
        Comparison("table 1", GOAL, "speed-up", "decode", "act", TRAINED, TASKS,
                   {"autoregressive": f"{PLAIN}.decode_speedup",
                    "strict": f"{TREE}.strict_speedup", "relaxed": f"{TREE}.relaxed_speedup"},
                   only_order=WORLD,
                   why="a strict tree of many siblings holds the neighbours that a tolerance "
                       "would let pass"),
        Comparison("table 1", GOAL, "success", "success", "arm", TRAINED,
                   f"{{{RELAXED_STARTS}.starts}} paired starts, difference "
                   f"{{{RELAXED_STARTS}.interval[0]}} to {{{RELAXED_STARTS}.interval[1]}} points",
                   {"autoregressive": f"{RELAXED_STARTS}.plain",
                    "relaxed": f"{RELAXED_STARTS}.success"},
                   only_order=ARM_WORLD, why="the interval of the paired difference holds 0"),
        *(Comparison("table 2", GOAL, f"{count}", "share", "arm", TRAINED, ON_ARM,
                     _arm(f"lengths[{count}]"), only_order=ARM_WORLD, why=LONGER)
          for count in range(6)),
        *(Comparison("table 3", GOAL, f"{place}", "accepted", "arm", TRAINED, ON_ARM,
                     _arm(f"positions[{place}]"), only_order=ARM_WORLD,
                     why="few relaxed rounds begin there, behind a rejection")
          for place in range(5)),
        Comparison("figure 4", "", "length", "round", "act", TRAINED, "3 tasks, chains of 6",
                   {"r = 0": "trees[tree=chain of 6].strict",
                    **{f"r = {setting}": f"arms[method=relaxed r={setting}].mean_acceptance_length"
                       for setting in (1, 3, 5, 9, 15)}}),
        Comparison("table 5", GOAL, "speed-up", "decode", "act", TRAINED, WEIGHTS,
                   {"bf16": f"{PLAIN}.decode_speedup",
                    **{name: f"weights[weights={name}].plain_speed" for name in QUANTISED}},
                   only_order=WORLD, why=UNPACKED),
        Comparison("table 6", GOAL, "speed-up", "decode", "act", TRAINED, WEIGHTS,
                   {"bf16": "arms[method=relaxed r=9].decode_speedup",
                    **{setting: f"weights[weights={setting}].speedup" for setting in QUANTISED}},
                   only_order=WORLD, why=UNPACKED),
    ),
    {
        "table 1": PUBLISHED,
        "table 2": PUBLISHED,
        "table 3": PUBLISHED,
        "table 5": PUBLISHED,
        "table 6": PUBLISHED,
    },
)  # fmt: skip
