import pytest
import torch
from torch import nn

from r2mae.errors import UserError
from r2mae.training.config import RunConfig
from r2mae.training.optimizers import SCALE, default_groups, make_optimizer, torch_groups
from r2mae.training.task import ParameterGroup


def test_groups_of_a_task_have_their_share_of_the_rate() -> None:
    one, other = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(2))
    groups = torch_groups([ParameterGroup([one]), ParameterGroup([other], scale=0.5, decayed=False)], 0.1)
    made = make_optimizer(groups, RunConfig.make(data="", optimizer="adamw", lr=0.1, weight_decay=0.05))
    assert [(group["lr"], group["weight_decay"], group[SCALE]) for group in made.param_groups] == [
        (0.1, 0.05, 1.0),
        (0.05, 0.0, 0.5),
    ]


@pytest.mark.parametrize("name", ["adam", "adamw", "sgd"])
def test_every_optimizer_descends(name: str) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 1, bias=False)
    config = RunConfig.make(data="", optimizer=name, base_lr=0.02)
    made = make_optimizer(default_groups(model, config), config)
    x = torch.randn(32, 4)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(60):
        loss = (model(x) - y).square().mean()
        made.zero_grad()
        loss.backward()
        made.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]


def test_betas_of_an_optimizer_without_them_are_refused() -> None:
    with pytest.raises(UserError, match="betas"):
        RunConfig.make(data="", optimizer="sgd", betas=(0.9, 0.95))
