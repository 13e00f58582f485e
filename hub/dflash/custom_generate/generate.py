"""DFlash: blocks of drafts in one forward.

`model.generate(**inputs, custom_generate="ORG/dflash", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import decode


def generate(
    model,
    num_draft_tokens="auto",
    **arguments,
):
    """A small block-diffusion model that was trained on the target's states drafts a whole
    block at once; published DFlash drafters are read as they are."""
    options = {
        "num_draft_tokens": num_draft_tokens,
    }
    return decode("DFlash", model, options, arguments, drafts="head")
