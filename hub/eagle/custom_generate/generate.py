"""Trees of trained heads: EAGLE-3 and others.

`model.generate(**inputs, custom_generate="ORG/eagle", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import decode


def generate(
    model,
    nodes="auto",
    depth=5,
    top_k=None,
    max_nodes=50,
    **arguments,
):
    """A head that was trained on the target's states drafts a dynamic tree; published EAGLE-3
    heads are read as they are."""
    options = {
        "nodes": nodes,
        "depth": depth,
        "top_k": top_k,
        "max_nodes": max_nodes,
    }
    return decode("Eagle", model, options, arguments, drafts="head")
