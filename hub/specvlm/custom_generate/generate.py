"""SpecVLM.

`model.generate(**inputs, custom_generate="ORG/specvlm", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    assistant_model=None,
    branching="auto",
    siblings="drawn",
    prune=0.9,
    focus=0.4,
    **arguments,
):
    """A static tree of a draft model whose visual tokens are pruned by the target's attention."""
    if assistant_model is None:
        raise sooner.SoonerError("SpecVLM: give assistant_model, a small model that is loaded")
    method = sooner.SpecVLM(
        assistant_model,
        branching=branching,
        siblings=siblings,
        prune=prune,
        focus=focus,
    )
    return model.generate(**arguments, custom_generate=method)
