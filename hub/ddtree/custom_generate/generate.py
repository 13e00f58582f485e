"""DDTree: trees of a block drafter's marginals.

`model.generate(**inputs, custom_generate="ORG/ddtree", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    assistant_model=None,
    nodes="auto",
    max_nodes=48,
    **arguments,
):
    """The most probable continuations under a DFlash drafter's marginals are verified as one
    tree."""
    if assistant_model is None:
        raise sooner.SoonerError("DDTree: give assistant_model, a trained head or its folder")
    method = sooner.DDTree(
        assistant_model,
        nodes=nodes,
        max_nodes=max_nodes,
    )
    return model.generate(**arguments, custom_generate=method)
