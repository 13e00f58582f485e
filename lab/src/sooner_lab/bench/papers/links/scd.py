"""Speculative coupled decoding."""

from __future__ import annotations

from .kinds import CHECKPOINTS, TRAINED, UNLIKE, Comparison, Key, Links, Reason

COUPLINGS = {"SJD": "sjd", "maximal": "maximal", "Gumbel": "gumbel"}
DRAWN = "{arms[0].drawings} drawing, random first drafts"
STUDY = "image.study"
STUDIED = "{image.study.drawings} drawings, L = {image.study.window}"
SCATTER = "one drawing each scatters"
WIDE = f"a wide window costs a CPU much more than one code does; {SCATTER}"
CERTAIN = "the clips are nearly certain, so coupling gains little; one drawing each scatters"
STEPS = {
    "preprocessing": ("gumbel", "preprocessing"),
    "transformer": ("gumbel", "transformer"),
    "logits": ("gumbel", "logits"),
    "draws (Gumbel)": ("gumbel", "sampling"),
    "verification (maximal)": ("maximal", "verification"),
    "post-processing": ("gumbel", "postprocessing"),
}


def _arms(kind: str, field: str, windows: tuple[int, ...]) -> dict[str, str | Key]:
    plain: dict[str, str | Key] = {"plain": f"arms[kind={kind}&method=plain].{field}"}
    return plain | {
        f"{row}, L = {window}":
        f"arms[kind={kind}&method={name}&window={window}&init=random].{field}"
        for window in windows
        for row, name in COUPLINGS.items()
    }  # fmt: skip


def _step(window: int) -> dict[str, str | Key]:
    return {
        row: f"image.breakdown.steps[coupling={name}&window={window}].milliseconds.{part}"
        for row, (name, part) in STEPS.items()
    }


def _strength(coupling: str, field: str, strength: float = 1.0) -> str:
    return f"{STUDY}.strengths[coupling={coupling}&strength={strength}].{field}"


def _studies() -> list[Comparison]:
    links = [
        Comparison("figure 3", "", "acceptance", "acceptance", "imagine", TRAINED,
                   f"{STUDIED}, 5th iteration",
                   {row: f"{STUDY}.trajectories.{COUPLINGS[row]}.mean[4]"
                    for row in ("SJD", "maximal")}),
        Comparison("figure 4", "", "collisions", "share", "imagine", TRAINED, STUDIED,
                   {row: Key(f"{STUDY}.collisions.{name}.agreed", times=100)
                    for row, name in COUPLINGS.items()}),
    ]  # fmt: skip
    for group in ("maximal", "Gumbel"):
        strengths = {
            f"strength {strength:g}": _strength(group.lower(), "nfe", strength)
            for strength in (0.0, 0.5, 1.0)
        }
        links.append(
            Comparison("figure 5", group, "NFE", "forwards", "imagine", TRAINED, STUDIED, strengths)
        )
    for after in (1, 2, 3):
        changed = {
            row: Key(_strength(row.lower(), f"hamming.{after}"), times=100)
            for row in ("maximal", "Gumbel")
        }
        links.append(
            Comparison("figure 6", f"N = {after}", "changed", "share", "imagine", TRAINED, STUDIED,
                       changed, why="two drawings of small pictures; its cause is not examined")
        )  # fmt: skip
    return links


PARTI = Reason(CHECKPOINTS, "Lumina-mGPT and Janus-Pro, and Parti's prompts")
LINKS = Links(
    (
        Comparison("table 1", "", "fewer forwards", "fewer", "imagine", TRAINED, DRAWN,
                   _arms("image", "nfe_reduction", (16, 32, 64)), why=SCATTER),
        Comparison("table 1", "", "speed-up", "e2e", "imagine", TRAINED, DRAWN,
                   _arms("image", "e2e_speedup", (16, 32, 64)), why=WIDE),
        Comparison("table 2", "", "NFE", "forwards", "imagine", TRAINED, DRAWN,
                   _arms("video", "nfe", (16, 32, 64, 128)), why=CERTAIN),
        Comparison("table 2", "", "latency", "seconds", "imagine", TRAINED, DRAWN,
                   _arms("video", "e2e_seconds", (16, 32, 64, 128)), why=CERTAIN),
        *(Comparison("table 4", "", f"L = {window}", "milliseconds", "imagine", TRAINED,
                     "steps of the picture miniature", _step(window),
                     why="on a CPU drawing a window costs more than preparing and verifying it")
          for window in (16, 32, 64)),
        *_studies(),
    ),
    {
        "table 1": Reason(UNLIKE, "our GSD has fixed groups, its authors' regroups at each place"),
        "table 3": Reason(CHECKPOINTS, "Janus-Pro"),
        "table 5": PARTI,
        "table 6": Reason(
            CHECKPOINTS,
            "Janus-Pro; three rows repeat figures of table 3, FID as CLIP score",
        ),
        "figure 2": Reason(UNLIKE, "at L = 64 there, ours was studied at L = 32"),
    },
)  # fmt: skip
