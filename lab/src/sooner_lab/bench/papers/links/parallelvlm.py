"""ParallelVLM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .kinds import (
    ANALYTIC,
    CHECKPOINTS,
    GPU,
    NOT_YET,
    REPEATS,
    REPLAY,
    TRAINED,
    Comparison,
    Key,
    Links,
    Reason,
)

BIG, SMALL = "LLaVA-OV (7B & 72B)", "LLaVA-OV (0.5B & 7B)"
QWEN = "Qwen2.5-VL (7B & 32B)"
PAIRS = {SMALL: "llava-ov-0.5b-7b", BIG: "llava-ov-7b-72b", QWEN: "qwen2.5-vl-7b-32b"}
SELF = {"LLaVA-OV (7B & 7B)": "llava-ov-7b-7b", "Qwen2.5-VL (7B & 7B)": "qwen2.5-vl-7b-7b"}
SPEED, LENGTH = "average speed-up", "VideoDetailCaption M"
CLIPS = "{clips} clips, {repeats} run(s)"
POINT = "points[rows=1&pattern=independent&acceptance=0.9]"
SEQUENTIAL = {
    "Vanilla SD": "speculative",
    "OnSD": "onsd",
    "SD-Tree": "sd-tree",
    "SpecVLM": "specvlm",
}
LOSSY = {
    "FastV": "fastv",
    "SparseVLM": "sparse-vlm",
    "P-Drop": "pyramid-drop",
    "DyCoke": "dycoke",
    "ParallelVLM": "parallel",
}
SIDES = {"autoregressive": "plain", "SD": "speculative", "ParallelVLM": "parallel"}
CHEAP_DRAFT = (
    "our draft is cheap unpruned, so what SpecVLM, OnSD and trees save is less than they cost"
)
SWEPT = "prompts of {prompt_tokens.visual} visual tokens"
TIMED = "marks, 4,096 visual tokens, 8 clips"
SELF_ARMS = {"OnSD": "onsd", "SpecVLM": "specvlm", "STD": "sparse-to-dense"}
DRAFTED_ARMS = {
    "Vanilla SD": "by-turns",
    "OnSD": "onsd",
    "SD-Tree": "sd-tree",
    "SpecVLM": "specvlm",
}
FEWER_MISSES = "a target step costs four draft steps, so five drafts by turns pay better than there"
SELF_DRAFT = "c is 1.3 at best where the target is its own draft: there is little to gain"
SHORT = "few visual tokens: pruning them hardly shortens a draft step"


def _arms(field: str, names: Mapping[str, str], at: str = "arms") -> dict[str, str | Key]:
    return {row: f"{at}[method={name}].{field}" for row, name in names.items()}


def _alphas(field: str, *shares: float, form: str = "α = {:.1f}") -> dict[str, str | Key]:
    """Points of the sweep, pruned by frame; the unpruned draft is its first."""
    return {
        form.format(share): f"sweep[alpha={share}&criterion=uv-prune-by-frame].{field}"
        for share in shares
    }


def _marks(criterion: str, alpha: float = 0.9) -> str:
    return f"drafts[draft=checkpoint].criteria[criterion={criterion}&alpha={alpha}].run_length"


def _timed(arm: str, alpha: float, field: str) -> str:
    """Names the field of one row in the world of marks, greedy."""
    return f"runs[rows=1&temperature=0.0].arms[arm={arm}&alpha={alpha}].{field}"


def _baselines(
    groups: Iterable[str], is_self: str, sequential: Mapping[str, str], why: str
) -> Iterator[Comparison]:
    """Table 1 beside the world of marks, by its draft or with the target as its own draft."""

    def arms(names: Mapping[str, str], field: str) -> dict[str, str | Key]:
        return {row: f"baselines.arms[arm={arm}&is_self={is_self}].{field}"
                for row, arm in names.items()}  # fmt: skip

    both = {**sequential, "ParallelVLM": "parallel"}
    run = {row: Key(str(key), plus=-1) for row, key in
           arms({"ParallelVLM": "parallel"}, "accepted_run_length").items()}  # fmt: skip
    for group in groups:
        for column, quantity, arm_keys in (
            (SPEED, "decode", arms(both, "over_plain.value")),
            (LENGTH, "round", arms(sequential, "mean_acceptance_length")),
            (LENGTH, "run", run),
        ):
            yield Comparison("table 1", group, column, quantity, "marks-baselines", TRAINED, TIMED,
                             arm_keys, why=why)  # fmt: skip


def _trained() -> list[Comparison]:
    with_parallel = {**SEQUENTIAL, "ParallelVLM": "parallel"}
    run = Key("arms[method=parallel].accepted_run_length", plus=-1)
    lossy = {
        row: Key(f"lossy[method={name}].acceptance_ratio", times=100)
        for row, name in LOSSY.items()
    }  # fmt: skip
    return [
        Comparison("table 1", BIG, SPEED, "decode", "parallel", TRAINED, CLIPS,
                   _arms("decode_speedup", with_parallel), why=CHEAP_DRAFT),
        Comparison("table 1", BIG, LENGTH, "round", "parallel", TRAINED, CLIPS,
                   _arms("mean_acceptance_length", SEQUENTIAL),
                   why="our draft is right so often that five tokens pass with or without a tree"),
        Comparison("table 1", BIG, LENGTH, "run", "parallel", TRAINED, CLIPS,
                   {"ParallelVLM": run}),
        Comparison("table 1", BIG, SPEED, "decode", "replay", REPLAY, "acceptance 0.9, c = 4.3",
                   _arms("decode_speedup", {"Vanilla SD": "speculative", "SD-Tree": "sd-tree",
                                            "ParallelVLM": "parallel"}, f"{POINT}.arms"),
                   only_order="all arms at one acceptance, the paper's at their own",
                   why="at one acceptance a tree's wider verification costs what its paths gain"),
        Comparison("table 2", "LLaVA-OV-72B", "average 𝒜", "agreement", "parallel", TRAINED,
                   CLIPS, lossy),
        Comparison("table 2", "LLaVA-OV-72B", SPEED, "decode", "parallel", TRAINED, CLIPS,
                   _arms("decode_speedup", LOSSY)),
        Comparison("table 3", BIG, "c", "speed ratio", "parallel", TRAINED, SWEPT,
                   _alphas("speed_ratio", 0.0, 0.5, 0.9), why=SHORT),
        Comparison("table 3", BIG, "c", "speed ratio", "marks-speed", TRAINED, TIMED,
                   {f"α = {share:.1f}": "speed." + _timed("parallel", share, "speed_ratio")
                    for share in (0.0, 0.5, 0.9)}),
        Comparison("table 3", BIG, "T_q", "milliseconds", "parallel", TRAINED, SWEPT,
                   {row: Key(str(key), times=1e3) for row, key in
                    _alphas("draft_step_seconds", 0.0, 0.5, 0.9).items()}, why=SHORT),
        Comparison("table 6", "", "peak memory", "gigabytes", "parallel", TRAINED, "one process",
                   {row: Key(f"memory.{name}", times=1 / 2**30) for row, name in SIDES.items()}),
        Comparison("table 6", "", "tokens/s", "rate", "parallel", TRAINED, CLIPS,
                   _arms("tokens_per_second", SIDES)),
        Comparison("table 6", "", "total latency", "seconds", "parallel", TRAINED, CLIPS,
                   _arms("e2e_seconds", SIDES)),
        *_baselines(PAIRS, "False", DRAFTED_ARMS, FEWER_MISSES),
        *_baselines(SELF, "True", SELF_ARMS, SELF_DRAFT),
        Comparison("table 7", "", "speed-up", "decode", "parallel", TRAINED, CLIPS,
                   _alphas("decode_speedup", 0.9, 0.95, form="α = {:.2f}"),
                   why="which tokens are kept hardly matters to this draft"),
        Comparison("table 7", "", "speed-up", "decode", "marks-speed", TRAINED, TIMED,
                   {f"α = {share:.2f}": "speed." + _timed("parallel", share, "over_plain.value")
                    for share in (0.9, 0.95)},
                   why="their intervals overlap"),
        Comparison("table 7", "", "M", "run", "marks", TRAINED, "marks, 96 clips",
                   {f"α = {share:.2f}": Key(_marks("uv-prune", share), plus=-1)
                    for share in (0.9, 0.95)}),
        Comparison("figure 3", "", "prefill", "seconds", "parallel", TRAINED, SWEPT,
                   {"target": "arms[method=speculative].seconds.prefill",
                    "draft": "arms[method=speculative].seconds.draft_prefill"}),
        Comparison("figure 3", "", "step", "milliseconds", "parallel", TRAINED, SWEPT,
                   {"target": Key("sweep[alpha=0.0].target_step_seconds", times=1e3),
                    "draft": Key("sweep[alpha=0.0].draft_step_seconds", times=1e3)}),
        Comparison("figure 6", BIG, "speed-up", "decode", "parallel", TRAINED, CLIPS,
                   _alphas("decode_speedup", 0.0, 0.9)),
        Comparison("figure 7", "", "M lost", "run", "marks", TRAINED, "marks, 96 clips",
                   {"UV-Prune": Key(_marks("uv-prune"), _marks("uv-prune")),
                    "the target's attention": Key(_marks("uv-prune"), _marks("attention")),
                    "without the target, least": Key(_marks("uv-prune"), _marks("uniform"))},
                   why="intervals of the two overlap: with this pair, attention keeps as much as "
                       "UV-Prune; with another it kept less than even spacing (docs/log.md)"),
        Comparison("figure 9", "similarity", "M", "run", "marks", TRAINED, "marks, 96 clips",
                   {"similarity": Key(_marks("similarity"), plus=-1),
                    "similarity and variation": Key(_marks("uv-prune"), plus=-1)},
                   why="their intervals overlap: variation adds nothing in the world of marks"),
        Comparison("figure 9", "attention", "M", "run", "marks", TRAINED, "marks, 96 clips",
                   {"attention": Key(_marks("attention"), plus=-1),
                    "attention and variation": Key(_marks("attention-variation"), plus=-1)},
                   why="see docs/results/marks.md"),
        Comparison("figure 4", "", "share of the kept", "share", "marks", TRAINED,
                   "marks, first and last two of 64 frames, 96 clips",
                   {"frames 1 and 125 to 128": Key(
                       "drafts[draft=checkpoint].criteria[criterion=attention&alpha=0.9]"
                       ".at_the_ends", times=100)}),
    ]  # fmt: skip


def _analytic() -> list[Comparison]:
    def key(pair: str, method: str) -> str:
        return f"table1[pair={pair}&method={method}].speedup"

    how = "paper's step times and M"
    pairs = [
        Comparison("table 1", group, SPEED, "decode", "theory", ANALYTIC, how,
                   {"Vanilla SD": key(name, "vanilla"), "ParallelVLM": key(name, "parallel")})
        for group, name in PAIRS.items()
    ]  # fmt: skip
    alone = [
        Comparison("table 1", group, SPEED, "decode", "theory", ANALYTIC, how,
                   {"ParallelVLM": key(name, "parallel")})
        for group, name in SELF.items()
    ]  # fmt: skip
    methods = {"autoregressive": "plain", "SD": "vanilla", "ParallelVLM": "parallel"}
    columns = {"target decode": "seconds", "tokens/s": "rate", "total latency": "seconds"}
    latency = [
        Comparison("table 6", "", column, quantity, "theory", ANALYTIC, how,
                   {row: f"table6[method={name}].{column.removesuffix(' latency')}"
                    for row, name in methods.items()})
        for column, quantity in columns.items()
    ]  # fmt: skip
    pruned = Comparison(
        "table 7", "", "speed-up", "decode", "theory", ANALYTIC, how,
        {f"α = {share}": f"table7[pruned={share}].speedup"
         for share in ("0.90", "0.95", "0.99", "1.00")},
    )  # fmt: skip
    return [*pairs, *alone, *latency, pruned]


PUBLISHED = Reason(CHECKPOINTS, "their own draft and target")
LINKS = Links(
    (*_trained(), *_analytic()),
    {
        "table 1": PUBLISHED,
        "table 2": PUBLISHED,
        "table 3": PUBLISHED,
        "table 4": Reason(GPU, "flash attention over a model of 72B"),
        "table 5": PUBLISHED,
        f"table 5 / {BIG}": Reason(REPEATS, "table 3 with a decimal"),
        f"table 5 / {QWEN}": Reason(REPEATS, "table 3 with a decimal"),
        "table 7": Reason(NOT_YET, "no run prunes as much"),
        "figure 6": PUBLISHED,
    },
)  # fmt: skip
