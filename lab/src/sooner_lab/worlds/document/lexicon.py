"""The words that pages are made of, by their role in a sentence.

A word's index decides its token id, and trained weights depend on it: new words go to the end of
`EXTRA`.
"""

from __future__ import annotations


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOUNS = _split(
    """time year people way day man thing woman life child world school state family student group
    country problem hand part place case week company system program question work government
    number night point home water room mother area money story fact month lot right study book eye
    job word business issue side kind head house service friend father power hour game line end
    member law car city community name president team minute idea body information back parent
    face level office door health person art war history party result change morning reason
    research girl guy moment air teacher force education foot boy age policy music market sense
    nation plan college interest death course field rate effect report river bridge garden paper
    letter table window street machine engine signal model data test measure light sound colour
    temperature pressure energy weight length price cost value figure page north south train"""
)
VERBS = _split(
    """shows makes takes gives finds keeps holds moves turns leaves brings begins helps runs writes
    provides sits stands loses pays meets includes continues sets learns changes leads follows
    stops creates speaks reads allows adds spends grows opens walks wins offers remembers loves
    considers appears buys waits serves builds stays falls cuts reaches kills remains suggests
    raises passes sells requires reports decides pulls needs wants calls asks uses tries"""
)
ADJECTIVES = _split(
    """good new first last long great little own other old big high different small large next
    early young important few public bad same able late hard major better strong possible whole
    free military true federal full special easy clear recent certain personal open red difficult
    available likely short single medical current wrong private past foreign fine common poor
    natural significant similar hot dead central happy serious ready simple left physical general
    green blue dark various entire close legal final main cold warm quiet"""
)
ADVERBS = _split(
    """often never always soon then here there now again still also quickly slowly today later
    almost rarely together early once"""
)
PLACES = _split("in on at near under over behind beside with without from to for after before")
ARTICLES = _split("the a this that every each some any no our their his her its my your")
JOINTS = _split("and but or while because when so if as than which who where")
EXTRA = _split("is are was has it they we he she of by not more most very can will")
NUMBERS = tuple(str(number) for number in range(100))
YEARS = tuple(str(year) for year in range(1990, 2030))
LETTERS = _split("x y z a b c k m n p q t")
OPERATORS = ("+", "-", "=")


def words() -> list[str]:
    """Every word, number and formula sign that a page can show, each once."""
    parts = (
        NOUNS, VERBS, ADJECTIVES, ADVERBS, PLACES, ARTICLES, JOINTS, EXTRA, NUMBERS, YEARS,
        LETTERS, OPERATORS,
    )  # fmt: skip
    return list(dict.fromkeys(word for part in parts for word in part))
