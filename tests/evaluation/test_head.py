import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from r2mae.errors import UserError
from r2mae.evaluation.head import LinearHead, fit_head

pytestmark = pytest.mark.slow


def data(n=300, d=12, classes=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator)
    return x, (x @ torch.randn(d, classes, generator=generator)).argmax(dim=1)


def test_is_a_plain_training_loop():
    x, y = data()
    generator = torch.Generator().manual_seed(7)
    layer = nn.Linear(12, 4)
    with torch.no_grad():
        layer.weight.copy_(torch.rand(4, 12, generator=generator) * 2 * 12**-0.5 - 12**-0.5)
        layer.bias.copy_(torch.rand(4, generator=generator) * 2 * 12**-0.5 - 12**-0.5)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.003)
    for _ in range(5):
        for rows in torch.randperm(300, generator=generator).split(128):
            optimizer.zero_grad()
            nn.functional.cross_entropy(layer(x[rows]), y[rows]).backward()
            optimizer.step()
    head = fit_head(x, y, epochs=5, seed=7)
    torch.testing.assert_close(head.weight, layer.weight.detach(), atol=1e-5, rtol=0)
    torch.testing.assert_close(head.bias, layer.bias.detach(), atol=1e-5, rtol=0)


def test_is_a_function_of_the_seed_only():
    x, y = data()
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = fit_head(x, y, epochs=2, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    second, other = fit_head(x, y, epochs=2, seed=3), fit_head(x, y, epochs=2, seed=4)
    assert torch.equal(first.weight, second.weight) and torch.equal(first.bias, second.bias)
    assert not torch.equal(first.weight, other.weight)


def test_arrays_and_tensors_give_the_same_head():
    x, y = data()
    from_array = fit_head(x.numpy().astype(np.float64), y.numpy().astype(np.int32), epochs=1)
    assert torch.equal(from_array.weight, fit_head(x, y, epochs=1).weight)


def test_learns_the_digits():
    X, y = load_digits(return_X_y=True)
    head = fit_head(X[:1400] / 16, y[:1400], lr=0.03)
    assert head.accuracy(X[1400:] / 16, y[1400:]) > 0.9
    assert head.predict(X[:5] / 16).shape == (5,)


@pytest.mark.parametrize(("rows", "epochs"), [(300, 667), (17_024, 16), (17_025, 15)])
def test_few_rows_are_repeated_for_2000_steps(rows, epochs):
    x, y = data(rows, d=2, classes=2)
    assert torch.equal(fit_head(x, y, seed=1).weight, fit_head(x, y, epochs=epochs, seed=1).weight)


def test_a_small_set_of_faint_contrast_is_learned():
    pixels = np.random.default_rng(0).integers(110, 140, (600, 64), dtype=np.uint8)
    labels = np.arange(600) % 3
    pixels[np.arange(600), labels] += 40
    pixels = pixels / 255
    assert fit_head(pixels[:480], labels[:480], epochs=15).accuracy(pixels[480:], labels[480:]) < 0.7
    assert fit_head(pixels[:480], labels[:480]).accuracy(pixels[480:], labels[480:]) > 0.9


def test_accuracy_counts():
    head = LinearHead(torch.eye(3), torch.zeros(3))
    assert head.accuracy(torch.eye(3), np.array([0, 1, 0])) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.full((3, 2), float("nan")), torch.zeros(3, dtype=torch.long), "NaN or infinity"),
        (torch.zeros(3, 2), torch.tensor([0, -1, 1]), "labels must be 0, 1"),
        (torch.zeros(0, 2), torch.zeros(0, dtype=torch.long), "0 rows of features and 0 labels"),
    ],
)
def test_bad_input(x, y, message):
    with pytest.raises(UserError, match=message):
        fit_head(x, y)


@pytest.mark.usefixtures("unchecked")
def test_unequal_lengths():
    with pytest.raises(UserError, match="3 rows of features and 2 labels"):
        fit_head(torch.zeros(3, 2), torch.zeros(2, dtype=torch.long))


@pytest.mark.usefixtures("unchecked")
def test_bytes_are_refused():
    with pytest.raises(UserError, match="the features are bytes: give floats, such as pixels / 255"):
        fit_head(torch.zeros(3, 2, dtype=torch.uint8), torch.zeros(3, dtype=torch.long))
