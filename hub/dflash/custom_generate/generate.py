"""DFlash: blocks of drafts in one forward.

`model.generate(**inputs, custom_generate="ORG/dflash", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    assistant_model=None,
    num_draft_tokens="auto",
    **arguments,
):
    """A small block-diffusion model that was trained on the target's states drafts a whole
    block at once; published DFlash, DFlash 2, DSpark and Domino drafters are read as they
    are."""
    if assistant_model is None:
        raise sooner.SoonerError("DFlash: give assistant_model, a trained head or its folder")
    method = sooner.DFlash(
        assistant_model,
        num_draft_tokens=num_draft_tokens,
    )
    return model.generate(**arguments, custom_generate=method)
