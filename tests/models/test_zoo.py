"""Every type of the zoo that is not refused says, by every method, what its own `generate` says."""

from __future__ import annotations

from dataclasses import asdict

import pytest
import transformers

import sooner
from sooner.models import adapt
from sooner.models.support import seen_with, supported
from zoo import counts, laws, support
from zoo.species import Species, model_of
from zoo.zoo import DECODED, HAS_STATES, REFUSED, ZOO

ALL = [
    pytest.param(species, kind, id=f"{species}-{kind}")
    for species in DECODED
    for kind in species.kinds
]


@pytest.mark.parametrize("species", DECODED, ids=str)
def test_a_tree_or_where_it_is_none_a_chain_equals_generate(species: Species) -> None:
    """For the kind of prompt that shows most; the merge lane has the other kinds and methods."""
    kind = species.kinds[-1]
    output, stats = laws.decoded(species, laws.methods_of(species, "chain", "tree")[-1], kind)
    assert output == laws.reference(species, kind)
    assert 0 < stats.num_accepted_draft_tokens < stats.num_draft_tokens


@pytest.mark.slow
@pytest.mark.parametrize(("species", "kind"), ALL)
def test_ids_of_every_method_are_those_of_generate(species: Species, kind: str) -> None:
    for name in laws.methods_of(species):
        assert laws.decoded(species, name, kind)[0] == laws.reference(species, kind), name
    expected = laws.reference(species, kind, is_sampled=True)
    for name in laws.methods_of(species, *laws.SAMPLED):
        assert laws.drawn(species, name, kind) == expected, name


@pytest.mark.parametrize("species", REFUSED, ids=str)
def test_a_refusal_of_a_type_names_the_reason_in_a_single_line(species: Species) -> None:
    with pytest.raises(sooner.SoonerError, match=species.refused) as caught:
        adapt(model_of(species))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("species", ZOO.values(), ids=str)
def test_the_library_s_table_tells_what_is_seen(species: Species) -> None:
    """`python -m zoo.support` in tests/ writes it."""
    expected = {**support.row(species)}
    actual = asdict({entry.model_type: entry for entry in supported()}[species.model_type])
    if not HAS_STATES and species.refused and actual["status"] != "refused":
        pytest.skip(f"transformers {transformers.__version__} lacks what {species} needs")
    if seen_with() != transformers.__version__:
        del expected["reason"], actual["reason"]
    assert actual == expected


def test_the_counts_that_are_promised() -> None:
    """55 classes with trees, on the version of transformers that the table is of."""
    assert [entry.model_type for entry in supported()] == sorted(
        {entry.model_type for entry in supported()}
    )
    exact = {entry.model_type for entry in supported() if entry.status == "exact" and entry.trees}
    if seen_with() == transformers.__version__:
        assert {entry.model_type for entry in supported()} == set(ZOO)
        assert len({type(model_of(ZOO[name])) for name in exact}) >= 55


def test_counts_of_a_version_are_those_of_its_row_in_the_page_of_models() -> None:
    """`python -m zoo.counts` in tests/ adds a row."""
    if transformers.__version__ not in counts.table():
        pytest.skip(f"tests/zoo/counts.json has no transformers {transformers.__version__}")
    assert counts.counts() == counts.table()[transformers.__version__]
