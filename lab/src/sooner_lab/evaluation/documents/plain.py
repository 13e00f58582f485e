"""Normalised texts, so that two notations of the same content agree."""

from __future__ import annotations

import html
import re
import unicodedata

from sooner.documents.serialise import bare_formula

TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
LINK = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")
FONT = re.compile(
    r"\\(?:math(?:rm|bf|it|sf|tt|bb|cal|scr|frak|normal)|text(?:rm|bf|it|sf|tt)?|boldsymbol|bm|"
    r"operatorname\*?|displaystyle|textstyle|left|right|[bB]igg?[lr]?|limits|notag|nonumber|"
    r"quad|qquad|hspace\*?|vspace\*?)(?![a-zA-Z])"
)
"""LaTeX that says how something looks and not what it is."""

SPACE = re.compile(r"\\[,;:!> ]|~|\s+")
SINGLE = re.compile(r"(?<!\\)\{([^{}\\])\}")
"""Braces around one letter, which change nothing."""

NUMBER = re.compile(r"\\(?:tag|label)\*?\s*\{[^{}]*\}")


def plain(text: str) -> str:
    """Letters and digits of a text, in Unicode's NFKC form.

    White space, punctuation and the marks of Markdown, HTML and LaTeX's fonts are gone. Case stays;
    commands of LaTeX stay with their name's letters.
    """
    text = LINK.sub(r"\1", IMAGE.sub("", text))
    text = FONT.sub("", TAG.sub("", html.unescape(text)))
    return "".join(letter for letter in unicodedata.normalize("NFKC", text) if letter.isalnum())


def bare_latex(text: str) -> str:
    """A formula without its wrapper, numbers, fonts, sizes, white space and needless braces."""
    text = NUMBER.sub("", bare_formula(text))
    return SINGLE.sub(r"\1", SPACE.sub("", FONT.sub("", text)))
