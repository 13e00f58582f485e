"""DDTree: trees of a block drafter's marginals.

`model.generate(**inputs, custom_generate="ORG/ddtree", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import decode


def generate(
    model,
    nodes="auto",
    max_nodes=48,
    **arguments,
):
    """The most probable continuations under a DFlash drafter's marginals are verified as one
    tree."""
    options = {
        "nodes": nodes,
        "max_nodes": max_nodes,
    }
    return decode("DDTree", model, options, arguments, drafts="head")
