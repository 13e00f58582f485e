"""All causal pairs of a plane, with log-sum-exps: what patterns' dense parts run."""
