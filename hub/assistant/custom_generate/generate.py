"""Gemma 4's assistants, in batches.

`model.generate(**inputs, custom_generate="ORG/assistant", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import decode


def generate(
    model,
    num_draft_tokens="auto",
    max_draft_tokens=8,
    **arguments,
):
    """A few layers that read the model's own keys and values draft a chain; Gemma 4's
    published assistants are read as they are."""
    options = {
        "num_draft_tokens": num_draft_tokens,
        "max_draft_tokens": max_draft_tokens,
    }
    return decode("Assistant", model, options, arguments, drafts="head")
