"""Trees of a draft model.

`model.generate(**inputs, custom_generate="ORG/sd-tree", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import decode


def generate(
    model,
    branching="auto",
    siblings="drawn",
    **arguments,
):
    """A small model drafts a tree of fixed shape, and one forward verifies it."""
    options = {
        "branching": branching,
        "siblings": siblings,
    }
    return decode("SDTree", model, options, arguments, drafts="model")
