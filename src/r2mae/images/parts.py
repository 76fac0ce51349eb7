"""Official parts of a set: how folders, shards and archives name them."""

import itertools
import logging
import re
from collections.abc import Collection, Mapping, Sequence

from r2mae.errors import UserError

TRAIN = ("train", "training")
HELD_OUT = ("test", "testing", "val", "valid", "validation", "dev", "development", "eval", "evaluation")
"""Words for parts next to the training part: the first that is there is the test part, a second the validation part."""

_WORD = re.compile(rf"(?<![a-z])({'|'.join((*TRAIN, *HELD_OUT))})(set|data)?(?![a-z])")


def official_parts(names: Collection[str], place: object) -> tuple[str, ...]:
    """Return the names of parts, in any spelling: Training and Testing, seg_train and seg_test, train1 and dev2.

    Parameters
    ----------
    names : collection of str
        Among them those of parts. The letters next to the word have to be the same in all.
    place : object
        What to call the set in errors.

    Returns
    -------
    tuple of str
        Empty, or the names of the training part, of the test part and, if there is one, of the validation part: of
        :data:`HELD_OUT` the first that is there is the test part.

    Raises
    ------
    UserError
        If there is more than one training part, or more than two next to it.
    """
    words: dict[str, dict[str, str]] = {}
    for name in sorted(names):
        spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        if found := _WORD.search(spelled):
            rest = re.sub("[^a-z]", "", spelled[: found.start()] + spelled[found.end() :])
            words.setdefault(rest, {})[name] = found[1]
    parts = [
        (training, held_out)
        for known in words.values()
        if (training := _in_order(known, TRAIN)) and (held_out := _in_order(known, HELD_OUT))
    ]
    if not parts:
        return ()
    training, held_out = (list(itertools.chain(*kind)) for kind in zip(*parts, strict=True))
    if len(training) > 1:
        raise UserError(f"{place}: has {' and '.join(training)}: keep only one of them, or name it as the data")
    if len(held_out) > 2:
        raise UserError(f"{place}: has {', '.join(held_out)} next to {training[0]}: keep only two of them")
    return (*training, *held_out)


def _in_order(words: Mapping[str, str], order: Sequence[str]) -> list[str]:
    return sorted((name for name, word in words.items() if word in order), key=lambda name: order.index(words[name]))


def log_parts(place: object, training: str, test: str, validation: str | None = None) -> None:
    """Log which part is used for what."""
    more = "" if validation is None else f"; {validation} is the validation part, which --validation uses"
    logging.getLogger("r2mae").warning("%s", f"{place}: {training} is trained on; {test} is the test part{more}")
