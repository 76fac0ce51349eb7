"""The lists of a comparison as words, of a command line or file: ratios, seeds and baselines. No torch."""

from collections.abc import Sequence

from r2mae.errors import UserError

_MOST_SEEDS = 10_000


def words_of(values: object) -> list[str]:
    """Return the words of a list: several words or one with commas; in a file also a single number or name."""
    values = [values] if isinstance(values, str | int | float) else values
    if not isinstance(values, list | tuple) or not all(isinstance(value, str | int | float) for value in values):
        raise UserError(f"expected names or numbers, or a list of them, not {str(values)[:80]!r}")
    return [word for value in values for word in str(value).split(",") if word]


def parse_ratios(words: Sequence[str]) -> list[float]:
    """Read ``--ratios 0.1 0.5``."""
    if not words:
        raise UserError("ratios is an empty list: name ratios, or omit the option")
    try:
        return [float(word.encode("ascii")) for word in words]  # digits of other scripts are a slip
    except ValueError:
        raise UserError(f"ratios must be numbers, not {' '.join(words)!r}") from None


def parse_seeds(words: Sequence[str]) -> list[int]:
    """Return the seeds: 0, 1, 2 for ``--seeds 3``, and the seeds themselves for ``--seeds 2 12 22``."""
    try:
        numbers = [int(word.encode("ascii")) for word in words]
    except ValueError:
        raise UserError(f"seeds must be whole numbers, not {' '.join(words)!r}") from None
    if not numbers:
        raise UserError("seeds is an empty list: give their number, or name them")
    if len(numbers) == 1:
        if numbers[0] < 1:
            raise UserError(f"a comparison needs at least one seed, not {numbers[0]}")
        if numbers[0] > _MOST_SEEDS:
            raise UserError(f"a comparison takes at most {_MOST_SEEDS:,} seeds, not {words[0][:30]}")
        return list(range(numbers[0]))
    if min(numbers) < 0 or len(set(numbers)) < len(numbers):
        raise UserError(f"seeds must be different numbers of 0 or more, not {' '.join(words)!r}")
    return numbers


def parse_baselines(words: Sequence[str] | None, default: Sequence[str]) -> list[str]:
    """Return the baselines of ``--baselines pca mean`` or ``--baselines none``; without the option the default ones."""
    if words is None:
        return list(default)
    others = [word for word in words if word != "none"]
    if len(others) not in (0, len(words)):
        raise UserError(f"--baselines none omits all baselines: name either none or {' '.join(others)}")
    return others
