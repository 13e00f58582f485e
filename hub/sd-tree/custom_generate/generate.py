"""Trees of a draft model.

`model.generate(**inputs, custom_generate="ORG/sd-tree", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    assistant_model=None,
    branching="auto",
    siblings="drawn",
    **arguments,
):
    """A small model drafts a tree of fixed shape, and one forward verifies it."""
    if assistant_model is None:
        raise sooner.SoonerError("SDTree: give assistant_model, a small model that is loaded")
    method = sooner.SDTree(
        assistant_model,
        branching=branching,
        siblings=siblings,
    )
    return model.generate(**arguments, custom_generate=method)
