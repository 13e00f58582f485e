"""Every type of the zoo that is not refused says, by every method, what its own `generate` says."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import transformers

import sooner
from sooner.models import adapt
from sooner.models.support import seen_with, supported
from zoo import laws, support
from zoo.species import Species, model_of
from zoo.zoo import DECODED, REFUSED, ZOO

ALL = [
    pytest.param(species, kind, id=f"{species}-{kind}")
    for species in DECODED
    for kind in species.kinds
]


@pytest.mark.parametrize("species", DECODED, ids=str)
def test_a_chain_and_a_tree_say_what_generate_says(species: Species) -> None:
    """For the kind of prompt that shows most; the merge lane has the other kinds and methods."""
    kind = species.kinds[-1]
    for name in laws.methods_of(species, "chain", "tree"):
        said, stats = laws.decoded(species, name, kind)
        assert said == laws.reference(species, kind), name
        if name == "chain":
            assert 0 < stats.num_accepted_draft_tokens < stats.num_draft_tokens


@pytest.mark.slow
@pytest.mark.parametrize(("species", "kind"), ALL)
def test_ids_of_every_method_are_those_of_generate(species: Species, kind: str) -> None:
    for name in laws.methods_of(species):
        assert laws.decoded(species, name, kind)[0] == laws.reference(species, kind), name
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
