"""Spec-VLA.

`model.generate(**inputs, custom_generate="ORG/spec-vla", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import act


def generate(
    model,
    bins=0,
    nodes="auto",
    depth=5,
    top_k=None,
    **arguments,
):
    """Action tokens of a robot's policy, drafted by a trained head and accepted where they are
    within a few bins of the policy's own choice."""
    options = {
        "bins": bins,
        "nodes": nodes,
        "depth": depth,
        "top_k": top_k,
    }
    return act(model, options, arguments)
