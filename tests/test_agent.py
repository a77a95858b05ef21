"""The network and the update, against numbers worked out by hand."""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch

from mario_ddqn.agent import DDQNAgent, NotFiniteError, double_dqn_target
from mario_ddqn.config import AgentConfig, NetworkConfig
from mario_ddqn.network import MarioNet
from mario_ddqn.replay import Batch

CPU = torch.device("cpu")
SHAPE = (4, 84, 84)
SMALL = NetworkConfig(width=0.125, hidden=16)


def agent(*, bf16: bool | str = False, **changes) -> DDQNAgent:
    torch.manual_seed(0)
    return DDQNAgent(AgentConfig(network=SMALL, bf16=bf16, **changes), SHAPE, 3, CPU)


def batch(size: int = 8, *, reward: float = 1.0, discount: float = 0.0) -> Batch:
    random = np.random.default_rng(0)
    frames = random.integers(0, 256, (2, size, *SHAPE), dtype=np.uint8)
    return Batch(
        torch.from_numpy(frames[0]),
        torch.from_numpy(random.integers(0, 3, size)),
        torch.full((size,), reward),
        torch.from_numpy(frames[1]),
        torch.full((size,), discount),
    )


def test_double_dqn_target_by_hand() -> None:
    """The online network chooses the action, the target network says what it is worth."""
    targets = double_dqn_target(
        rewards=torch.tensor([1.0, 2.0, 3.0]),
        discounts=torch.tensor([0.9, 0.81, 0.0]),
        next_online=torch.tensor([[5.0, 1.0], [1.0, 5.0], [9.0, 0.0]]),
        next_target=torch.tensor([[10.0, 99.0], [99.0, 20.0], [7.0, 7.0]]),
    )
    assert targets.tolist() == pytest.approx([1 + 9, 2 + 16.2, 3])


@pytest.mark.parametrize(("double", "worth"), [(True, 2.0), (False, 7.0)])
def test_who_chooses_the_action_that_the_target_network_values(double: bool, worth: float) -> None:
    learner = agent(double=double)
    with torch.no_grad():
        for network, outputs in (
            (learner.online, [1.0, 0.0, 0.0]),
            (learner.target, [2.0, 7.0, 0.0]),
        ):
            network.advantage[-1].weight.zero_()
            network.advantage[-1].bias.copy_(torch.tensor(outputs))
    data = batch(reward=100.0, discount=0.5)
    result = learner.update(data)
    values = np.where(data.actions.numpy() == 0, 1.0, 0.0)
    assert result.errors == pytest.approx(100 + 0.5 * worth - values)


def test_update_is_huber_loss_and_adam_by_hand() -> None:
    """Of the last layer's bias: a step of Adam's first update is lr * sign(gradient)."""
    learner = agent(learning_rate=0.01)
    data = batch(reward=100.0)
    bias = learner.online.advantage[-1].bias
    before = bias.detach().clone()
    with torch.no_grad():
        values = learner.online(data.observations).gather(1, data.actions[:, None]).squeeze(1)
    result = learner.update(data)
    # |difference| > 1, so Huber's loss is |difference| - 1/2, and its gradient has one sign.
    assert result.loss == pytest.approx((100 - values - 0.5).mean().item(), rel=1e-4)
    assert result.mean_q == pytest.approx(values.mean().item(), rel=1e-4, abs=1e-6)
    taken = sorted(set(data.actions.tolist()))
    change = (bias.detach() - before)[taken]
    assert change.tolist() == pytest.approx([0.01] * len(taken), rel=1e-3)


def test_tutorial_network_has_the_tutorials_weights() -> None:
    net = MarioNet(SHAPE, 2, NetworkConfig())
    convolutions = 32 * (4 * 64 + 1) + 64 * (32 * 16 + 1) + 64 * (64 * 9 + 1)
    dense = 512 * (3136 + 1) + 2 * (512 + 1)
    assert sum(weight.numel() for weight in net.parameters()) == convolutions + dense


def test_dueling_head_is_value_plus_advantage_less_its_mean() -> None:
    torch.manual_seed(0)
    net = MarioNet(SHAPE, 3, NetworkConfig(width=0.125, hidden=8, dueling=True))
    data = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (2, *SHAPE), np.uint8))
    values = net(data)
    features = net.features(net.pixels(data.float() / 255))
    advantage = net.advantage(features)
    expected = net.value(features) + advantage - advantage.mean(1, keepdim=True)
    assert torch.allclose(values, expected, atol=1e-6)


@pytest.mark.parametrize("size", [36, 64, 84, 112])
def test_other_sizes_fit(size: int) -> None:
    net = MarioNet((2, size, size), 5, SMALL)
    assert net(torch.zeros((3, 2, size, size), dtype=torch.uint8)).shape == (3, 5)


def test_hard_sync_copies_every_so_many_updates() -> None:
    learner = agent(sync_every=3)
    data = batch()
    weight = learner.target.advantage[-1].bias
    start = weight.clone()
    for update in (1, 2, 3):
        learner.update(data)
        same_as_start = torch.equal(weight, start)
        assert same_as_start == (update < 3)
    assert torch.equal(weight, learner.online.advantage[-1].bias)


def test_soft_sync_moves_a_share_of_the_way() -> None:
    learner = agent(sync_every=None, soft_sync=0.25)
    before = learner.target.advantage[-1].bias.clone()
    learner.update(batch())
    online = learner.online.advantage[-1].bias.detach()
    expected = before + 0.25 * (online - before)
    assert torch.allclose(learner.target.advantage[-1].bias, expected)


def averaged(updates: int) -> tuple[DDQNAgent, torch.Tensor]:
    """After so many updates and ten more; the average before those."""
    learner = agent(average=0.1)
    data = batch()
    for _ in range(updates):
        learner.update(data)
    before = learner.average.advantage[-1].bias.clone()
    for _ in range(10):
        learner.update(data)
    return learner, before


# A share of 1 - 0.9^10 = 0.651 for ten updates, but 10 / (70 / 5) after 70, and all of it
# as long as a fifth of the updates is less than ten.
@pytest.mark.parametrize(("updates", "share"), [(0, 1.0), (60, 10 / 14), (70, 1 - 0.9**10)])
def test_average_moves_its_share_for_each_update(updates: int, share: float) -> None:
    learner, before = averaged(updates)
    online = learner.online.advantage[-1].bias.detach()
    expected = before + share * (online - before)
    assert torch.allclose(learner.average.advantage[-1].bias, expected)
    assert learner.policy is learner.average
    assert agent().policy is not agent().average


def test_learning_rate_goes_linearly_to_its_end() -> None:
    learner = agent(learning_rate=0.4, learning_rate_final=0.2, learning_rate_steps=4)
    data, rates = batch(), []
    for _ in range(6):
        learner.update(data)
        rates.append(learner.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.4, 0.35, 0.3, 0.25, 0.2, 0.2])


def test_bf16_is_close_to_float32() -> None:
    exact, rough = agent(), agent(bf16=True)
    data = batch(discount=0.9)
    losses = exact.update(data).loss, rough.update(data).loss
    assert losses[0] == pytest.approx(losses[1], rel=0.05)


def test_bf16_changes_hardly_a_value() -> None:
    """The last layer stays in float32: values are told apart to better than bfloat16's 1/256."""
    net, observations = agent().online, batch(64).observations
    with torch.no_grad():
        exact = net(observations)
        with torch.autocast("cpu", torch.bfloat16):
            rough = net(net.prepare(observations, torch.bfloat16))
    assert rough.dtype == torch.float32
    assert (rough - exact).abs().max() < 1 / 256 * exact.abs().max()


def test_bf16_auto_asks_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    data = batch(discount=0.9)
    losses = [agent(bf16=bf16).update(data).loss for bf16 in (False, True)]
    for has_amx in (False, True):
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", partial(bool, has_amx))
        assert agent(bf16="auto").update(data).loss == losses[has_amx]


@pytest.mark.parametrize("side", [84, 64, 86, 39])
def test_first_convolution_is_the_tutorials(side: int) -> None:
    """Blocks of pixels as channels are another way to compute 8x8 with stride 4."""
    torch.manual_seed(0)
    net = MarioNet((4, side, side), 3, SMALL)
    observations = torch.randint(0, 256, (2, 4, side, side), dtype=torch.uint8)
    plain = torch.nn.functional.conv2d(
        observations / 255, net.pixels.weight, net.pixels.bias, stride=4
    )
    blocks = torch.nn.functional.conv2d(
        net.prepare(observations), net._block_weight(), net.pixels.bias
    )
    assert torch.allclose(blocks, plain, atol=1e-5)
    head = net.advantage(net.features(plain))
    assert torch.allclose(net(observations), head, atol=1e-5)


def test_prepared_observations_give_the_same_values() -> None:
    net = agent().online
    data = batch().observations
    assert torch.equal(net(net.prepare(data)), net(data))


@pytest.mark.parametrize("poison", ["rewards", "weights"])
def test_what_is_not_finite_is_refused_before_it_spoils_the_weights(poison: str) -> None:
    learner, data = agent(), batch(discount=0.9)
    if poison == "rewards":
        data.rewards[3] = float("nan")
    else:
        with torch.no_grad():
            learner.target.advantage[-1].bias[1] = float("inf")
    before = copy.deepcopy(learner.online.state_dict())
    with pytest.raises(NotFiniteError, match="update 1: loss"):
        learner.update(data)
    assert learner.updates == 0
    after = learner.online.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_weights_scale_the_loss_of_their_transitions() -> None:
    data = batch()
    plain = agent().update(data)
    data.weights = torch.tensor([1.0, 0, 0, 0, 0, 0, 0, 0])
    weighted = agent().update(data)
    # Values of a new network are near 0, so Huber's loss of an error is its half square.
    assert weighted.loss == pytest.approx(plain.errors[0] ** 2 / 2 / 8, rel=1e-5)
    assert weighted.errors.tolist() == plain.errors.tolist()


def test_random_shift_learns_from_shifted_observations() -> None:
    data = batch()
    losses = {agent(random_shift=shift).update(data).loss for shift in (0, 4)}
    assert len(losses) == 2


def test_gradient_clipping_bounds_the_norm() -> None:
    learner = agent(grad_clip=1e-3)
    learner.update(batch(reward=1000.0))
    norms = torch.stack([weight.grad.norm() for weight in learner.online.parameters()])
    assert norms.norm().item() <= 1.001e-3


def test_it_learns_which_action_pays() -> None:
    """One observation, three actions with rewards 0, 1, 2: values and greedy choice follow."""
    learner = agent(learning_rate=0.003)
    frames = np.random.default_rng(0).integers(0, 256, (1, *SHAPE), np.uint8)
    actions = torch.arange(3).repeat(4)
    observations = torch.from_numpy(frames).expand(12, -1, -1, -1)
    data = Batch(observations, actions, actions.float(), observations, torch.zeros(12))
    for _ in range(150):
        loss = learner.update(data).loss
    assert loss < 0.01
    assert learner.greedy_actions(frames).tolist() == [2]


def test_a_changed_learning_rate_wins_over_the_saved_one() -> None:
    learner = agent(learning_rate=0.5)
    learner.set_state(copy.deepcopy(agent(learning_rate=0.1).get_state()))
    assert learner.optimizer.param_groups[0]["lr"] == 0.5


def test_state_goes_on_bit_by_bit() -> None:
    learner, other = agent(), agent()
    data = batch(discount=0.9)
    for _ in range(3):
        learner.update(data)
    other.set_state(copy.deepcopy(learner.get_state()))
    assert other.updates == 3
    assert learner.update(data).loss == other.update(data).loss
    for mine, theirs in zip(learner.online.parameters(), other.online.parameters(), strict=True):
        assert torch.equal(mine, theirs)
