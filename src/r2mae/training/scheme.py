"""A masking scheme with all its options: the only place where given options meet the domain's defaults. No torch."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from r2mae.errors import UserError
from r2mae.fields import FieldError, short_repr, value_of
from r2mae.masking.defaults import SchemeDefaults
from r2mae.masking.schemes import (
    SCHEME_OPTIONS,
    Scheme,
    SchemeKind,
    check_option,
    option_not_taken,
    resolve_options,
    scheme_kind,
)


@dataclass(frozen=True)
class SchemeSpec:
    """The scheme of a run: its name and the value of every option that it takes.

    Two are equal if they mask in the same way, whichever options were given. :meth:`resolve` makes one.

    Parameters
    ----------
    name : str
        Registered name of the scheme.
    options : mapping
        The options by name, none of them None. Not to be changed.
    given : tuple of str
        The options that the user gave, for display.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    given: tuple[str, ...] = field(default=(), compare=False)

    @classmethod
    def resolve(cls, name: str, given: Mapping[str, Any], defaults: SchemeDefaults) -> "SchemeSpec":
        """Return a scheme with the given options, and the defaults for all others.

        Parameters
        ----------
        name : str
            Registered name of the scheme.
        given : mapping
            Options by name; None keeps the default.
        defaults : SchemeDefaults
            The domain's defaults.
        """
        given = {option: value for option, value in given.items() if value is not None}
        if unused := next((option for option in given if option not in scheme_kind(name).options), None):
            raise FieldError(unused, option_not_taken(unused, [name]))
        given = check_options(given)
        try:
            options = resolve_options(name, given, defaults)
            scheme_kind(name).build(**options)  # refuses impossible ratios
        except (ValueError, TypeError, ArithmeticError) as error:  # of a scheme of another package, too
            raise UserError(str(error)) from None
        return cls(scheme_kind(name).name, options, tuple(option for option in options if option in given))

    @property
    def kind(self) -> SchemeKind:
        """The registered properties of the scheme."""
        return scheme_kind(self.name)

    @property
    def given_options(self) -> dict[str, Any]:
        """The options that the user gave, by name."""
        return {option: self.options[option] for option in self.given}

    def make(self) -> Scheme:
        """Return the scheme, not yet bound to a number of steps."""
        return self.kind.build(**self.options)

    def bind(self, total_steps: int, steps_per_epoch: float | None = None, batch_size: int | None = None) -> Scheme:
        """Return the scheme bound to a run, see :meth:`r2mae.masking.schemes.Scheme.bind`."""
        try:
            return self.make().bind(total_steps, steps_per_epoch, batch_size)
        except ValueError as error:
            raise UserError(str(error)) from None

    def to_dict(self) -> dict[str, Any]:
        """Return plain types for a run folder: the name, the options, and which of them were given."""
        return {"name": self.name, **self.options, "given": list(self.given)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "SchemeSpec":
        """Read what :meth:`to_dict` wrote, whatever today's defaults are; the options must be those of this version."""
        name, given = values.get("name"), values.get("given")
        options = {option: value for option, value in values.items() if option not in ("name", "given")}
        if not isinstance(name, str) or not isinstance(given, list) or not {*map(str, given)} <= {*options}:
            raise UserError(f"scheme takes a name and its options, not {short_repr(dict(values))}")
        spec = cls.resolve(name, options, SchemeDefaults(0.5, 0.0, 1.0))
        if missing := [option for option in spec.options if option not in spec.given]:
            raise UserError(f"the scheme {name!r} has no {missing[0]}: the file is of another version, or was edited")
        return cls(spec.name, spec.options, tuple(given))


def check_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given options of schemes with their types; those that are None are left out."""
    checked: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        kind = SCHEME_OPTIONS[name].kind if name in SCHEME_OPTIONS else float
        checked[name] = value
        with suppress(ValueError):  # a text may mean a number; anything else is refused by its check
            checked[name] = value_of(value, kind)
        checked[name] = check_option(name, checked[name])
    return checked
