"""Families of reactions: which terms are active, and with which signs. Source: the reference of arXiv 2606.20002.

The evaluation families hold no set of terms that the training family holds, but each of their terms occurs there.
"""

from cod_lightning.envs.pde.library import TERMS

SHORT = dict(
    zip(["u", "u2", "u3", "u4", "u5", "u7", "S1", "S2", "E", "L", "T", "Q", "H2", "H4", "K"], TERMS, strict=True)
)
"""Terms of the library by the words that name them in the lists below."""
Template = tuple[tuple[str, int], ...]
"""Terms with their signs."""


def _read(text: str) -> tuple[Template, ...]:
    return tuple(template_of(word) for word in text.split())


def template_of(word: str) -> Template:
    """A template from its short form.

    >>> template_of("-S2-u3")
    (('sin(2*u)', -1), ('u**3', -1))
    """
    spaced = word.replace("-", " -").replace("+", " +").split()
    return tuple((SHORT[part.lstrip("+-")], -1 if part.startswith("-") else 1) for part in spaced)


_TRAIN = """
-u -u3 -S1 -T -H2 u-u2 u-u3 u-u5 u2-u4 S1-u3 E-u2 L-u2 T-u2 T-u3 Q-u2 Q-u3 H2-u H2-u3 u3-u5 T-u H4-u K-u S2-u2 S2-u3 S2-u5
S1-u4 T-u4 Q-u4 K-u2 K-u3 -S2-u2 -S2-u3 -S2-u5 -S1-u4 -S1-u3 Q-u H2-u2 u3-u7 u2-u5 H2-u5
"""
_HARD_TWO = "u-u4 u2-u3 S1-u5 E-u3 L-u4 T-u5 Q-u5 H2-u4 u-u7 S1-S2 H2-H4 E-u5"
_HARD_THREE = "u+u2-u3 u+T-u3 u-u3-u5 S1-S2-u3 u+u3-u7 H2+H4-u5"

FAMILIES: dict[str, tuple[Template, ...]] = {
    "physical_full_train": _read(_TRAIN),
    "physical_full_eval_hard": _read(f"{_HARD_TWO} {_HARD_THREE}"),
    "physical_full_eval_4000": _read(f"{_HARD_TWO} S1-E u5-u7 Q-T u3-u4 H2-L {_HARD_THREE} E+T-u7 S2+H2-u7"),
}


def eligible(family: str, min_terms: int, max_terms: int) -> tuple[Template, ...]:
    """The family's templates of these sizes, in its order."""
    return tuple(template for template in FAMILIES[family] if min_terms <= len(template) <= max_terms)
