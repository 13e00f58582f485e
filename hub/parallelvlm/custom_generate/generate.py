"""ParallelVLM.

`model.generate(**inputs, custom_generate="ORG/parallelvlm", trust_remote_code=True)`;
the README says what the options mean.
"""

from sooner.hub import decode


def generate(
    model,
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
    options = {
        "prune": prune,
        "min_visual": min_visual,
        "layer": layer,
        "criterion": criterion,
        "num_draft_tokens": num_draft_tokens,
        "max_draft_tokens": max_draft_tokens,
        "schedule": schedule,
        "placement": placement,
        "draft_device": draft_device,
    }
    return decode("ParallelVLM", model, options, arguments, drafts="model")
