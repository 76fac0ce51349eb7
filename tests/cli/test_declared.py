"""From what domains declare to options, help and errors."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from r2mae.cli.declared import (
    add_options,
    baselines_in_words,
    evaluation_of,
    files_in_words,
    given_options,
    listed,
    parameters_of,
)
from r2mae.cli.parsing import Parser
from r2mae.domains.base import Domain
from r2mae.domains.options import NPZ, CommandLine, Evaluation, Exporter, Option
from r2mae.errors import UserError

RUN = Path("runs/a")
SIZE = Option("size_mode", "how large.", choices=("small", "large"))
USUAL = Evaluation()
NAMES = Option("names", "which.", tuple[str, ...], parameter="chosen", needed="the names: --names a b")


def domain(name: str, default: Evaluation = USUAL, *others: Evaluation, **more: Any) -> Domain:
    declared = CommandLine(evaluation=default, evaluations=others, **more)
    return cast(Domain, SimpleNamespace(name=name, command_line=declared, exporters=(NPZ,), default_baselines=()))


def parser() -> Parser:
    return Parser("r2mae test", "Test.", "r2mae test")


def test_an_option_of_two_domains_is_one_option() -> None:
    made = parser()
    one, two, three = domain("one"), domain("two"), domain("three")
    add_options(made, [(one, SIZE), (two, SIZE), (three, replace(SIZE, help="how wide."))], "with --data, ")
    told = " ".join(made.format_help().split())
    assert "With --data, for one and two: how large. With --data, for three: how wide." in told
    assert made.read(["--size-mode", "small"])["size_mode"] == "small"
    assert given_options(made.read([]), [(one, SIZE)]) == {}


def test_it_may_say_more_than_its_domain() -> None:
    made = parser()
    add_options(made, [(domain("one"), replace(SIZE, whose="large models"))])
    assert "For large models: how large." in " ".join(made.format_help().split())


@pytest.mark.parametrize("other", [replace(SIZE, choices=("small",)), replace(SIZE, choices=(), kind=int)])
def test_domains_that_differ_about_an_option(other: Option) -> None:
    with pytest.raises(UserError, match=r"the domain two declares --size-mode, which the domain one has with another"):
        add_options(parser(), [(domain("one"), SIZE), (domain("two"), other)])


def test_an_option_that_the_command_has() -> None:
    made = parser()
    made.add_argument("--size_mode", type=int)
    with pytest.raises(UserError, match=r"the domain one declares --size-mode, which 'r2mae test' has with another"):
        add_options(made, [(domain("one"), SIZE)])


def test_an_option_sets_its_parameter() -> None:
    assert parameters_of(RUN, domain("one"), (SIZE, NAMES), {"names": ("a",)}) == {"chosen": ("a",)}
    switch = replace(SIZE, meaning={"small": 1, "large": 9})
    assert parameters_of(RUN, domain("one"), (switch,), {"size_mode": "large"}) == {"size_mode": 9}
    with pytest.raises(UserError, match=r"^runs/a is a run of the domain one, which has no --size-mode: omit it$"):
        parameters_of(RUN, domain("one"), (NAMES,), {"size_mode": "small"})


def test_evaluations_by_name() -> None:
    tests = Evaluation("tests", options=(NAMES,), name="tests")
    one = domain("one", Evaluation("default", options=(SIZE,)), tests)
    assert (
        evaluation_of(one, RUN, None, {}).help
        == evaluation_of(one, RUN, "one", {"size_mode": "small"}).help
        == "default"
    )
    assert evaluation_of(one, RUN, "tests", {"names": ("a",)}) is tests
    mistakes: list[tuple[str | None, dict[str, Any], str]] = [
        ("test", {}, "did you mean 'tests'"),
        ("tests", {}, "evaluate RUN tests needs the names: --names a b"),
        (None, {"names": ("a", "b")}, "--names belongs to tests: r2mae evaluate runs/a tests --names a b"),
        ("tests", {"names": ("a",), "size_mode": "small"}, "tests has no --size-mode: omit it"),
        (None, {"pitch": 1}, "runs/a is a run of the domain one, which has no --pitch: omit it"),
    ]
    for what, given, told in mistakes:
        with pytest.raises(UserError) as error:
            evaluation_of(one, RUN, what, given)
        assert told in str(error.value)


def test_an_evaluation_of_another_domain_is_unknown() -> None:
    """Its options are not said to be of an evaluation that such a run does not have."""
    with pytest.raises(UserError, match="which has no --names"):
        evaluation_of(domain("two"), RUN, None, {"names": ("a",)})


def test_help_in_words() -> None:
    one = domain("one", baselines="mean")
    two = cast(Domain, SimpleNamespace(**{**vars(one), "name": "two", "exporters": (Exporter(".x", NPZ.write), NPZ)}))
    assert files_in_words([one, two, domain("three")]) == "of one and three .npz; of two .x or .npz"
    assert baselines_in_words([one, domain("three")], default=True) == "of one mean (by default none)"
    assert listed([("one", "words " * 40), ("none", "")]).splitlines()[1].startswith(" " * 10 + "words")
