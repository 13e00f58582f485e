"""The tables of an imagine result, for the terminal and for Markdown."""

from __future__ import annotations

from typing import Any

from ..pages import ReportTable, cell, head, sections

FIGURES = {
    "story": "The iteration that accepted each token, SJD and coupled draws on the same prompt, "
    "from the same first drafts",
    "windows": "Forwards and time over L (tables 1 and 2)",
    "trajectories": "Acceptance rate of a place over its iterations (figure 3)",
    "collision": "Collision probability against total variation (figure 4)",
    "strength": "Coupling strength (figure 5)",
    "hamming": "Drafts changed after N iterations (figure 6)",
}
PIECES = {
    "preprocessing": "preprocessing (window)",
    "transformer": "transformer forward",
    "logits": "logit processing",
    "sampling": "draws of the window",
    "verification": "verification (MRS)",
    "postprocessing": "post-processing",
}


def tables(result: dict[str, Any]) -> list[ReportTable]:
    """Every table that the result has figures for, the goals first."""
    found = [_goals(result["goals"])] if result["goals"] else []
    for kind in ("image", "video"):
        if kind not in result:
            continue
        told = result[kind]
        arms = [arm for arm in result["arms"] if arm["kind"] == kind]
        found += [_arms(kind, arms, told)] if arms else []
        found += [_quality(kind, told["quality"])] if told.get("quality") else []
        found += [_breakdown(kind, told["breakdown"])] if told.get("breakdown") else []
        found += [_inits(kind, told["study"])] if told.get("study") else []
    return found + ([_vocabulary(result["vocabulary"])] if result.get("vocabulary") else [])


def markdown(result: dict[str, Any], source: str) -> str:
    """The page of one result; figures are linked where the JSON lists them."""
    title = f"Imagine: {result['model']}"
    lines = [*head(result, source, title), *sections(tables(result)), *_figures(result)]
    return "\n".join(lines) + "\n"


def _figures(result: dict[str, Any]) -> list[str]:
    lines: list[str] = []
    for kind in ("image", "video"):
        for name, caption in FIGURES.items():
            data = "story" if name == "story" else "study"
            has = any(arm["kind"] == kind for arm in result["arms"])
            if has if name == "windows" else result.get(kind, {}).get(data):
                stem = f"figures/imagine-{kind}-{name}"
                lines += ["", f"![{caption}: {kind}]({stem}.png)"]
                also = f" ([animation]({stem}.webp))" if name == "story" else ""
                lines += ["", f"*{caption}, {kind}*{also}"]
    return ["", "## Figures", *lines] if lines else []


def _goals(goals: list[dict[str, Any]]) -> ReportTable:
    rows = [
        [
            one["goal"],
            one["wanted"] if isinstance(one["wanted"], str) else f"at least {one['wanted']:g}",
            f"{one['reached']:.2f}",
            "yes" if one["met"] else "no",
        ]
        for one in goals
    ]
    return ReportTable("Goals", ["figure", "wanted", "reached", "met"], rows)


def _arms(kind: str, arms: list[dict[str, Any]], told: dict[str, Any]) -> ReportTable:
    columns = (
        ("nfe", "{:.1f}"), ("nfe_reduction", "{:.2f}×"), ("decode_seconds", "{:.2f}"),
        ("e2e_seconds", "{:.2f}"), ("decode_speedup", "{:.2f}×"), ("tokens_per_second", "{:.0f}"),
        ("theory_speedup", "{:.2f}×"), ("share_of_theory", "{:.0%}"), ("parity", "{}"),
    )  # fmt: skip
    rows = [
        [arm["method"], arm.get("init") or "–", str(arm["window"] or "–"), arm["mode"]]
        + [cell(arm.get(key), form) for key, form in columns]
        for arm in arms
    ]
    heads = [
        "arm",
        "first drafts",
        "L",
        "mode",
        "NFE",
        "fewer",
        "decode s",
        "e2e s",
        "speed-up",
        "tokens/s",
    ]
    number, table = arms[0]["drawings"], {"image": 1, "video": 2}[kind]
    remark = (
        f"{number} drawing(s) of {told['new_tokens']} tokens an arm, guidance "
        f"{told['guidance']:g}; the same prompts and seeds, arms in turns. *Parity* is greedy, "
        "against the model's own `generate`; *theory* is what acceptance and step times allow."
    )
    if told.get("batch"):
        remark += (
            " Batch of {rows} at L = {window} (Gumbel): {tokens_per_second:.0f} tokens/s against "
            "{tokens_per_second_1:.0f} for one, {speedup:.2f}×."
        ).format(**told["batch"])
    title = f"{kind.capitalize()}s: speed (table {table})"
    return ReportTable(title, [*heads, "theory", "of theory", "parity"], rows, remark)


def _quality(kind: str, told: dict[str, Any]) -> ReportTable:
    names = sorted({name for arm in told["arms"] for name in arm["accuracy"]})
    extra = [name for name in ("fid", "inception_score") if name in told["arms"][-1]]
    rows = []
    for arm in [*told["arms"], *told.get("power", [])]:
        tests = [arm.get(test, {}).get("p") for test in ("features_test", "codes_test")]
        rows.append(
            [arm["method"], f"{arm['nfe']:.1f} ± {arm['nfe_deviation']:.1f}"]
            + [cell(arm["accuracy"].get(name), "{:.3f}") for name in names]
            + [cell(arm.get("frechet"), "{:.3f}")]
            + [cell(arm.get(name), "{:.2f}") for name in extra]
            + [cell(p, "{:.3f}") for p in tests]
        )
    heads = ["arm", "NFE", *names, "Fréchet to plain", *extra, "p (features)", "p (codes)"]
    judge = told["judge"] or "mean colours, without a judge"
    start = f" from {told['init']}" if "init" in told else ""
    remark = (
        f"{told['drawings']} drawings an arm at L = {told['window']}{start}, features by the "
        f"{judge}. "
        "*plain again* is plain decoding with other seeds: the noise floor of every column. p: "
        "permutation tests that one distribution explains both sets (energy distance of features, "
        f"chi-square of code histograms).{power(told)}"
    )
    return ReportTable(f"{kind.capitalize()}s: quality", heads, rows, remark)


def power(told: dict[str, Any]) -> str:
    """What the tests could have found, in words; see `quality.power`."""
    wrong = told.get("power")
    if not wrong:
        return ""
    missed = [one["method"] for one in wrong if not one["rejected"]]
    seen = [one["method"] for one in wrong if one["rejected"]]
    if not missed:
        return f" The tests do see what is wrong: they reject {' and '.join(seen)}."
    lossy = ", that of the lossy `gsd` included" if _has(told, "gsd") else ""
    also = f" They do reject {' and '.join(seen)}." if seen else ""
    return (
        f" **At {told['drawings']} drawings the tests have no power to tell small differences**: "
        f"they do not reject {' and '.join(missed)}, which is drawn from another distribution. So "
        f"a high p{lossy}, is no evidence that an arm is exact.{also}"
    )


def _has(told: dict[str, Any], method: str) -> bool:
    return any(arm["method"] == method for arm in told["arms"])


def _breakdown(kind: str, told: dict[str, Any]) -> ReportTable:
    steps = told["steps"]
    heads = ["milliseconds a step", *(f"{one['coupling']} L={one['window']}" for one in steps)]
    rows = [
        [PIECES[name], *(f"{one['milliseconds'][name]:.2f}" for one in steps)]
        for name in told["rows"]
    ]
    rows.append(["**step**", *(f"{one['total']:.2f}" for one in steps)])
    rows.append(["draws and verification", *(f"{one['sampling_share']:.1%}" for one in steps)])
    rows.append(["outside the transformer", *(f"{one['overhead_share']:.1%}" for one in steps)])
    return ReportTable(f"{kind.capitalize()}s: one step (table 4)", heads, rows)


def _inits(kind: str, study: dict[str, Any]) -> ReportTable:
    rows = [
        [
            one["init"],
            f"{one['nfe']:.1f}",
            cell(one.get("sjd_nfe"), "{:.1f}"),
            f"{one['sjd_nfe'] / one['nfe']:.2f}×" if "sjd_nfe" in one else "–",
        ]
        for one in sorted(study["inits"], key=_nfe)
    ]
    heads = ["first draft of both", "NFE, Gumbel coupling", "NFE, SJD", "SJD over Gumbel"]
    remark = f"L = {study['window']}, {study['drawings']} drawings each."
    return ReportTable(f"{kind.capitalize()}s: first drafts", heads, rows, remark)


def _nfe(one: dict[str, Any]) -> float:
    return float(one["nfe"])


def _vocabulary(told: dict[str, Any]) -> ReportTable:
    rows = [[name, f"{value:.1f}"] for name, value in told["milliseconds"].items()]
    title = f"Sampling at a vocabulary of {told['vocabulary']:,}, L = {told['window']}"
    remark = "Made-up logits on this machine: what a step would pay beside its forward."
    return ReportTable(title, ["piece", "milliseconds"], rows, remark)
