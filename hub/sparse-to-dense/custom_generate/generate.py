"""Sparse to dense.

`model.generate(**inputs, custom_generate="ORG/sparse-to-dense", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    num_draft_tokens="auto",
    max_draft_tokens=16,
    prune=0.9,
    **arguments,
):
    """The target drafts for itself on the part of its cache that its attention looks at."""
    if arguments.pop("assistant_model", None) is not None:
        raise sooner.SoonerError("SparseToDense drafts without a model; leave assistant_model out")
    method = sooner.SparseToDense(
        num_draft_tokens=num_draft_tokens,
        max_draft_tokens=max_draft_tokens,
        prune=prune,
    )
    return model.generate(**arguments, custom_generate=method)
