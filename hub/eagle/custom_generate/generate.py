"""Trees of trained heads: EAGLE-3 and others.

`model.generate(**inputs, custom_generate="ORG/eagle", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    assistant_model=None,
    nodes="auto",
    depth=5,
    top_k=None,
    max_nodes=50,
    **arguments,
):
    """A head that was trained on the target's states drafts a dynamic tree; published EAGLE-3
    heads are read as they are."""
    if assistant_model is None:
        raise sooner.SoonerError("Eagle: give assistant_model, a trained head or its folder")
    method = sooner.Eagle(
        assistant_model,
        nodes=nodes,
        depth=depth,
        top_k=top_k,
        max_nodes=max_nodes,
    )
    return model.generate(**arguments, custom_generate=method)
