"""Spec-VLA.

`model.generate(**inputs, custom_generate="ORG/spec-vla", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner
from sooner.models.openvla.statistics import ActionStatistics, ActionTokens


def generate(
    model,
    assistant_model=None,
    unnorm_key=None,
    bins=0,
    nodes="auto",
    depth=5,
    top_k=None,
    **arguments,
):
    """Action tokens of a robot's policy, drafted by a trained head and accepted where they are
    within a few bins of the policy's own choice."""
    if assistant_model is None:
        raise sooner.SoonerError("Relaxed: give assistant_model, a trained head or its folder")
    statistics = ActionStatistics.choose(model.config.norm_stats, unnorm_key)
    tolerance = sooner.Tolerance(ActionTokens.of(model.config), statistics.dims, bins)
    eagle = sooner.Eagle(
        assistant_model,
        nodes=nodes,
        depth=depth,
        top_k=top_k,
    )
    return model.generate(**arguments, custom_generate=sooner.Relaxed(eagle, tolerance))
