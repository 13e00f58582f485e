"""Gemma 4's assistants, in batches.

`model.generate(**inputs, custom_generate="ORG/assistant", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    assistant_model=None,
    num_draft_tokens="auto",
    max_draft_tokens=8,
    **arguments,
):
    """A few layers that read the model's own keys and values draft a chain; Gemma 4's
    published assistants are read as they are."""
    if assistant_model is None:
        raise sooner.SoonerError("Assistant: give assistant_model, a trained head or its folder")
    method = sooner.Assistant(
        assistant_model,
        num_draft_tokens=num_draft_tokens,
        max_draft_tokens=max_draft_tokens,
    )
    return model.generate(**arguments, custom_generate=method)
