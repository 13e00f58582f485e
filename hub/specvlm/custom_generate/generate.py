"""SpecVLM.

`model.generate(**inputs, custom_generate="ORG/specvlm", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import decode


def generate(
    model,
    branching="auto",
    siblings="drawn",
    prune=0.9,
    focus=0.4,
    **arguments,
):
    """A static tree of a draft model whose visual tokens are pruned by the target's attention."""
    options = {
        "branching": branching,
        "siblings": siblings,
        "prune": prune,
        "focus": focus,
    }
    return decode("SpecVLM", model, options, arguments, drafts="model")
