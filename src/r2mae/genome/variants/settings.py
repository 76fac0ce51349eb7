"""What a run's variants are measured with: fields of its configuration. No torch."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from r2mae.errors import UserError

BENIGN = ":benign"
"""What the name of a column ends in whose high values are benign."""


@dataclass(frozen=True, kw_only=True)
class VariantSettings:
    """Variants with a label, on which finished models are measured.

    Parameters
    ----------
    variants : str, optional
        A file of variants (VCF, .tsv, .csv, Parquet) on which finished models are measured, too.
    label : str, optional
        The column of this file (of a VCF also a key of INFO) that scores are compared with. Two values: the area under
        the ROC curve and the precision-recall curve. Other numbers: Spearman's correlation.
    positive : str, optional
        The value of the label that marks harmful variants, which low scores find; by default 1, or true.
    classes : str, optional
        A column whose values divide the variants into classes that are measured one by one, too.
    contrasts : list of str
        Pairs of these classes, HARMFUL/OTHER such as stop_gained/synonymous: how well low scores discriminate
        the variants of one from those of the other, as the area under the ROC curve, whatever the label.
    """

    variants: str | None = None
    label: str | None = None
    positive: str | None = None
    classes: str | None = None
    contrasts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if inherited := getattr(super(), "__post_init__", None):
            inherited()
        object.__setattr__(self, "contrasts", tuple(dict.fromkeys("/".join(sides_of(one)) for one in self.contrasts)))
        if self.variants is None:
            for one in fields(VariantSettings):
                if getattr(self, one.name) not in (None, ()):
                    raise UserError(f"{one.name} is about a file of variants: name it with --variants FILE")
        elif self.label is None:
            raise UserError("variants need the column that scores are compared with: --label COLUMN")
        if self.contrasts and self.classes is None:
            raise UserError("contrasts are pairs of classes: name the column that has them with --classes COLUMN")


NO_VARIANTS: Mapping[str, Any] = asdict(VariantSettings())
"""The values of these fields where there are no variants."""

HELD_OUT = "_held_out"
"""What scores of variants at positions that the model has not learned end in."""


def sides_of(contrast: str) -> tuple[str, str]:
    """Return the harmful class of a contrast, and the other.

    Raises
    ------
    UserError
        If these are not two names.
    """
    harmful, _, other = (part.strip() for part in contrast.partition("/"))
    if not harmful or not other or harmful == other:
        raise UserError(f"contrast {contrast!r} is not two classes: write HARMFUL/OTHER, as stop_gained/synonymous")
    return harmful, other


def contrast_name(contrast: str) -> str:
    """Return how a contrast is called in scores: ``stop_gained_vs_synonymous``."""
    return "_vs_".join(sides_of(contrast))
