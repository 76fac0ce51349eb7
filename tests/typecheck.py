"""The type checker of the tests: jaxtyping where an annotation has shapes, and elsewhere beartype, which costs less."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ForwardRef, get_args

import jaxtyping
from beartype import BeartypeConf, beartype

JAXTYPED = jaxtyping.jaxtyped
check = beartype(conf=BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError))  # int is float


def has_shapes(annotation: Any) -> bool:
    """Whether beartype does not check it by itself: arrays with shapes, and names that are resolved later."""
    shaped = inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray)
    return shaped or isinstance(annotation, str | ForwardRef) or any(map(has_shapes, get_args(annotation)))


def checked(function: Any = None, *, typechecker: Any) -> Any:
    """Do what `jaxtyping.jaxtyped` does; most functions have no shapes, and need none of its bookkeeping.

    A function within a function would be compiled at every call of that one: without shapes it is not checked.
    """
    if function is None:
        return partial(checked, typechecker=typechecker)
    if inspect.isclass(function):
        if dataclasses.is_dataclass(function) and "__init__" in vars(function):
            function.__init__ = checked(function.__init__, typechecker=typechecker)  # type: ignore[method-assign]
        return function
    if not inspect.isfunction(function) or any(map(has_shapes, function.__annotations__.values())):
        return JAXTYPED(function, typechecker=typechecker)
    if "<locals>" in function.__qualname__:
        return function
    with_types: Callable[..., Any] = typechecker(function)

    @wraps(function)
    def either(*args: Any, **options: Any) -> Any:
        return (function if jaxtyping.config.jaxtyping_disable else with_types)(*args, **options)

    return either


jaxtyping.jaxtyped = checked  # type: ignore[assignment]
