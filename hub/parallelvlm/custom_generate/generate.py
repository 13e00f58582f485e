"""ParallelVLM.

`model.generate(**inputs, custom_generate="ORG/parallelvlm", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    assistant_model=None,
    prune=0.9,
    min_visual=256,
    layer=None,
    criterion="uv-prune-by-frame",
    num_draft_tokens="auto",
    max_draft_tokens=16,
    schedule="auto",
    placement="auto",
    draft_device=None,
    **arguments,
):
    """A small model drafts while the target verifies, each on cores or a device of its own,
    and sees only the visual tokens that the target's own ranking keeps."""
    if assistant_model is None:
        raise sooner.SoonerError("ParallelVLM: give assistant_model, a small model that is loaded")
    method = sooner.ParallelVLM(
        assistant_model,
        prune=prune,
        min_visual=min_visual,
        layer=layer,
        criterion=criterion,
        num_draft_tokens=num_draft_tokens,
        max_draft_tokens=max_draft_tokens,
        schedule=schedule,
        placement=placement,
        draft_device=draft_device,
    )
    return model.generate(**arguments, custom_generate=method)
