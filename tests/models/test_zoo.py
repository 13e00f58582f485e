"""Every type of the zoo that is not refused says, by every method, what its own `generate` says."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import transformers

import sooner
from sooner.models import adapt
from sooner.models.support import seen_with, supported
from zoo import laws, support
from zoo.species import Species, model_of
from zoo.zoo import DECODED, REFUSED, ZOO


def cases(*brief: str) -> list[Any]:
    """Each species that is not refused, with each kind of prompt that it takes.

    Args:
        brief: kinds that are left to the long run where a species takes more.
    """
    return [
        pytest.param(
            species, kind, id=f"{species}-{kind}",
            marks=[pytest.mark.soak] if kind in brief and species.kinds[-1] != kind else [],
        )
        for species in DECODED
        for kind in species.kinds
    ]  # fmt: skip


@pytest.mark.parametrize(("species", "kind"), cases("image"))
def test_greedy_ids_are_those_of_generate(species: Species, kind: str) -> None:
    wanted = laws.reference(species, kind)
    accepted, drafted = 0, 0
    for name in laws.methods_of(species):
        said, stats = laws.decoded(species, name, kind)
        assert said == wanted, name
        if name == "chain":
            accepted, drafted = stats.num_accepted_draft_tokens, stats.num_draft_tokens
    assert 0 < accepted < drafted, "a draft has to be right now and then, and not always"


@pytest.mark.slow
@pytest.mark.parametrize(("species", "kind"), cases("text", "image"))
def test_drawn_ids_are_those_of_generate(species: Species, kind: str) -> None:
    wanted = laws.reference(species, kind, is_sampled=True)
    for name in laws.methods_of(species, *laws.SAMPLED):
        assert laws.drawn(species, name, kind) == wanted, name


@pytest.mark.parametrize("species", REFUSED, ids=str)
def test_a_type_that_is_refused_is_told_why_in_one_line(species: Species) -> None:
    with pytest.raises(sooner.SoonerError, match=species.refused) as told:
        adapt(model_of(species))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("species", ZOO.values(), ids=str)
def test_the_library_s_table_tells_what_is_seen(species: Species) -> None:
    """`python -m zoo.support` in tests/ writes it."""
    found = support.row(species)
    told = asdict({one.model_type: one for one in supported()}[species.model_type])
    if seen_with() != transformers.__version__:
        del found["reason"], told["reason"]
    assert told == found


def test_the_counts_that_are_promised() -> None:
    """55 classes with trees, on the version of transformers that the table is of."""
    assert [one.model_type for one in supported()] == sorted(
        {one.model_type for one in supported()}
    )
    exact = {one.model_type for one in supported() if one.status == "exact" and one.trees}
    if seen_with() == transformers.__version__:
        assert {one.model_type for one in supported()} == set(ZOO)
        assert len({type(model_of(ZOO[name])) for name in exact}) >= 55
