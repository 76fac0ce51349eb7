"""The front door: what `r2mae.NAME` offers."""

import importlib
import pickle
import pkgutil
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import r2mae
from r2mae import MaskRatio
from r2mae.domains.lookup import all_domains
from r2mae.errors import UserError
from r2mae.masking import (
    Key,
    LinearDecay,
    Uniform,
    column_mask,
    element_mask,
    make_scheme,
    patch_mask,
    scheme_kind,
    scheme_names,
    token_mask,
)
from r2mae.masking.defaults import SchemeDefaults

DEFAULTS = SchemeDefaults(0.5, 0.3, 0.8)


def options_of(scheme: str) -> dict[str, Any]:
    """The ratios that a scheme needs."""
    return {name: value for name, value in DEFAULTS.for_scheme("").items() if name in scheme_kind(scheme).options}


@pytest.mark.parametrize("name", scheme_names())
@given(step=st.integers(0, 199), seed=st.integers(0, 2**40), first=st.integers(0, 5))
def test_it_draws_what_keys_draw(name: str, step: int, seed: int, first: int) -> None:
    ratio = MaskRatio(name, total_steps=200, batch_size=9, seed=seed, **options_of(name))
    key, scheme = Key.root(seed), make_scheme(name, DEFAULTS).bind(200, None, 9)
    drawn = scheme.ratio.draw(step, key.fold("ratio").rows(first), 4)
    masks, special = key.fold("mask", step).rows(first), torch.arange(48).view(4, 12) % 5 == 0
    exact = scheme.ratio.stratified_per_sample
    expected = element_mask((4, 3, 6), drawn, masks, exact=exact)
    assert torch.equal(ratio.mask((4, 3, 6), step, first_row=first), expected)
    assert torch.equal(ratio.tokens(special, step, first_row=first), token_mask(special, drawn, masks))
    if scheme.ratio.per_sample:
        assert torch.equal(ratio(step, 4, first_row=first), torch.as_tensor(drawn).float())  # type: ignore[arg-type]
        return
    assert ratio(step) == ratio(step, rows=4) == drawn == scheme.ratio(step, key.fold("ratio"))
    assert type(ratio(step)) is float
    found = ratio.patches(4, 10, step, first_row=first)
    assert all(map(torch.equal, found, patch_mask(4, 10, ratio(step), masks)))
    assert torch.equal(ratio.columns(30, step), column_mask(30, ratio(step), masks))


@given(step=st.integers(0, 50), parts=st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_processes_together_hide_what_one_would(step: int, parts: list[int]) -> None:
    for name in ("r2mae", "r2mae-per-sample"):
        ratio = MaskRatio(name, low=0.1, high=0.9, batch_size=sum(parts))
        masks = [ratio.mask((size, 20), step, first_row=sum(parts[:i])) for i, size in enumerate(parts)]
        assert torch.equal(torch.cat(masks), pickle.loads(pickle.dumps(ratio)).mask((sum(parts), 20), step))


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ("r2mea", {}, "did you mean 'r2mae'"),
        ("r2mae", {"low": 0.5}, r"needs high: MaskRatio\('r2mae', high=0.9\)"),
        ("r2mae", {"lo": 0.5, "high": 0.9}, "did you mean 'low'"),
        ("fixed", {"ratio": 0.5, "low": 0.1}, "does not take 'low'"),
        ("r2mae", {"low": 0.9, "high": 0.1}, "swap them"),
        ("dynamic", {"low": 0.1, "high": 0.9}, "give total_steps="),
        ("dynamic", {"low": 0.1, "high": 0.9, "total_steps": 9, "decay_in": "epochs"}, "give steps_per_epoch="),
        ("cl", {"ratio": 0.5, "low": 0.1, "high": 0.9}, "give total_steps="),
        (LinearDecay(0.9, 0.1), {}, "give total_steps="),
        ((0.1, 0.9), {"low": 0.1}, "low is an option of a scheme"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_in_one_line(given: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        MaskRatio(given, **options)
    assert "\n" not in str(refused.value)


def test_a_ratio_for_every_sample_needs_to_know_them() -> None:
    ratio = MaskRatio("r2mae-per-sample", low=0.1, high=0.9)
    for call in (lambda: ratio(3), lambda: ratio.patches(4, 10, 3), lambda: ratio.columns(10, 3)):
        with pytest.raises(UserError, match="a ratio for every sample"):
            call()
    with pytest.raises(UserError, match="batch_size"):
        ratio.mask((4, 9), 3, first_row=2)
    with pytest.raises(UserError, match="from 0"):
        ratio.mask((4, 9), -1)


def test_ratios_without_a_name() -> None:
    assert MaskRatio(0.75)(4) == 0.75
    assert MaskRatio((0.5, 0.9), seed=3)(4) == MaskRatio(Uniform(0.5, 0.9), seed=3)(4)
    assert MaskRatio(LinearDecay(0.9, 0.1), total_steps=9)(8) == pytest.approx(0.1)
    assert MaskRatio(LinearDecay(0.9, 0.1).bind(9))(8) == pytest.approx(0.1)


def test_packages_are_there_without_an_import() -> None:
    code = "import r2mae; r2mae.masking.Uniform; r2mae.images.DOMAIN; r2mae.training.RunConfig; print(*dir(r2mae))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {*r2mae.__all__, "masking", "theory"} <= {*done.stdout.split()}


@pytest.mark.parametrize("package", [r2mae, r2mae.training, r2mae.masking, r2mae.theory, r2mae.evaluation])
def test_no_module_hides_a_function(package: ModuleType) -> None:
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("__"):
            importlib.import_module(f"{package.__name__}.{module.name}")
    assert all(callable(getattr(package, name)) or not isinstance(getattr(package, name), ModuleType)
               for name in package.__all__)  # fmt: skip


def test_every_domain_has_its_object_in_its_package() -> None:
    for domain in all_domains():
        if type(domain).__module__.startswith("r2mae."):
            assert importlib.import_module(f"r2mae.{domain.name}").DOMAIN is domain
