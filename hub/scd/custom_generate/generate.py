"""Speculative coupled decoding.

`model.generate(**inputs, custom_generate="ORG/scd", trust_remote_code=True)`;
the README says what the options mean.
"""

import sooner


def generate(
    model,
    jacobi_window=64,
    coupling="gumbel",
    strength=1.0,
    init=None,
    count=1,
    seed=None,
    guidance=None,
    **arguments,
):
    """Pictures and clips of autoregressive models: a window of the last iteration is the
    draft, and its draws are coupled with the target's."""
    if arguments.pop("assistant_model", None) is not None:
        raise sooner.SoonerError("CoupledJacobi drafts without a model; leave assistant_model out")
    method = sooner.CoupledJacobi(
        jacobi_window=jacobi_window,
        coupling=coupling,
        strength=strength,
        init=init,
    )
    # As in `generate`: drawn if `do_sample` says so.
    config = arguments.pop("generation_config", None) or model.generation_config
    if (mode := config.get_generation_mode()) not in ("sample", "greedy_search"):
        raise sooner.SoonerError(f"scd draws or takes the likeliest code, not {mode.value}")
    options = {"guidance": guidance}
    for name in ("do_sample", "temperature", "top_k", "top_p"):
        value = arguments.pop(name, None)
        options[name] = getattr(config, name, None) if value is None else value
    options = {name: value for name, value in options.items() if value is not None}
    ids = arguments.pop("inputs", None)
    inputs = {
        "input_ids": arguments.pop("input_ids", ids),
        "attention_mask": arguments.pop("attention_mask", None),
    }
    arguments.pop("use_model_defaults", None)
    if left := [name for name, value in arguments.items() if value is not None]:
        raise sooner.SoonerError(f"scd knows no {', '.join(left)}; leave it out")
    inputs = {name: value for name, value in inputs.items() if value is not None}
    options = {"do_sample": False, "count": count, "seed": seed, **options}
    return sooner.draw(sooner.canvas(model), inputs, method, **options).tokens
