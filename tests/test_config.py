"""Configuration: every mistake is told with file, line, key, and what is allowed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mario_ddqn.config import Config
from mario_ddqn.config_file import (
    dump_config,
    load_config,
    option_rows,
    parse_config,
    with_overrides,
)
from mario_ddqn.errors import UserError

CONFIGS = Path(__file__).parent.parent / "configs"


def test_tutorial_is_the_tutorial() -> None:
    config = load_config(CONFIGS / "tutorial.yaml")
    agent, exploration = config.agent, config.exploration
    assert config.env.actions == "tutorial"
    assert (config.env.frame_skip, config.env.stack, config.env.size) == (4, 4, 84)
    assert (agent.gamma, agent.batch_size, agent.learning_rate) == (0.9, 32, 0.00025)
    assert (agent.n_step, agent.network.width, agent.network.hidden) == (1, 1.0, 512)
    assert not agent.network.dueling
    assert (config.train.burn_in, config.train.steps_per_update) == (10_000, 3)
    assert config.agent.sync_every == 3333
    assert exploration.kind == "decay"
    assert exploration.exploration_rate == 1
    assert exploration.exploration_rate_decay == 0.99999975
    assert exploration.exploration_rate_min == 0.1
    assert config.replay.maxlen == 100_000


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_files_have_every_key_with_its_comment(path: Path) -> None:
    """They are what dump_config writes, below a heading of their own."""
    text = path.read_text()
    assert text.endswith(dump_config(load_config(path)))
    heading = text.removesuffix(dump_config(load_config(path)))
    assert all(line.startswith("#") or not line for line in heading.splitlines())


def test_defaults_and_round_trip() -> None:
    assert parse_config("", "empty.yaml") == Config()
    config = parse_config("env: {stage: 8-4, actions: [right, left+B]}\nseed: 7\n", "x.yaml")
    assert config.env.actions == ["right", "left+B"]
    assert parse_config(dump_config(config), "y.yaml") == config


def test_every_option_has_a_text() -> None:
    rows = list(option_rows())
    assert len(rows) > 40
    assert all(len(doc) > 5 for _key, _default, doc in rows)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agent:\n  gama: 1\n", "x.yaml:2: agent.gama: unknown key; did you mean agent.gamma?"),
        ("gamma: 0.9\n", "x.yaml:1: gamma: unknown key; did you mean agent.gamma?"),
        (
            "agent:\n  gamma: 1.5\n",
            "x.yaml:2: agent.gamma: is '1.5'; expected a number at least 0 and at most 1",
        ),
        ("agent:\n  gamma: .inf\n", "x.yaml:2: agent.gamma: is '.inf'; expected a number"),
        ("agent:\n  gamma: .nan\n", "x.yaml:2: agent.gamma: is '.nan'; expected a number"),
        ("agent:\n  gamma: 1e999\n", "x.yaml:2: agent.gamma: is '1e999'; expected a number"),
        (
            "train:\n\n  steps: 1.5\n",
            "x.yaml:3: train.steps: is '1.5'; expected a whole number at least 1",
        ),
        ("seed: -1\n", "x.yaml:1: seed: is '-1'; expected a whole number at least 0"),
        ("seed: '1'\n", "x.yaml:1: seed: is '1'; expected a whole number"),
        ("seed: yes\n", "x.yaml:1: seed: is 'yes'; expected a whole number"),
        ("seed: [1]\n", "x.yaml:1: seed: expected a whole number"),
        (
            "replay: {maxlen: 10}\n",
            "x.yaml:1: replay.maxlen: is '10'; expected a whole number at least 1000, or auto",
        ),
        ("replay: {device: tpu}\n", "replay.device: is 'tpu'; expected auto | cpu | cuda"),
        ("env: 3\n", "x.yaml:1: env: is a section; give its keys below it, indented"),
        ("env: [3]\n", "x.yaml:1: env: is a section; give its keys below it, indented"),
        ("seed: {a: 1}\n", "x.yaml:1: seed: takes one value, not a section"),
        ("env:\n  stage: 9-1\n", "x.yaml:2: env.stage: is '9-1'; expected 1-1 to 8-4, or game"),
        ("env:\n  actions: [fly]\n", "x.yaml:2: env.actions: unknown button 'fly'"),
        ("agent: {soft_sync: 0.1}\n", "agent.sync_every, agent.soft_sync: exactly one"),
        ("name: a/b\n", "x.yaml:1: name: is 'a/b'; expected a plain folder name"),
        ("seed: 1\nseed: 2\n", "x.yaml:2: the key 'seed' is given twice"),
        ("seed: 1\n\tenv: 2\n", "x.yaml:2: not valid YAML"),
        ("a: &x 1\nb: *x\n", "x.yaml:2: aliases (*x) are not allowed"),
        ("seed: !!python/object:os.system 1\n", "x.yaml:1: tags"),
        ("- 1\n", "x.yaml:1: expected `key: value` lines"),
        ("{", "x.yaml:1: not valid YAML"),
        ("a: " + "[" * 5000, "not valid YAML"),
        ("---\nseed: 1\n---\nseed: 2\n", "not valid YAML"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_config(text, "x.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_as_people_write_them() -> None:
    config = parse_config(
        "train: {steps: 3e6, burn_in: 10_000}\nagent: {learning_rate: 1e-4, grad_clip: 10}\n", "x"
    )
    assert config.train.steps == 3_000_000
    assert config.train.burn_in == 10_000
    assert config.agent.learning_rate == 0.0001
    assert config.agent.grad_clip == 10
    assert isinstance(config.train.steps, int)


def test_overrides_win_and_name_themselves() -> None:
    config = parse_config("seed: 1\n", "x", ["seed=2", "env.reward.clip=null", "agent.gamma=0.5"])
    assert (config.seed, config.env.reward.clip, config.agent.gamma) == (2, None, 0.5)
    for override, message in [
        ("agent.gama=1", "--set agent.gama=1: agent.gama: unknown key; did you mean agent.gamma?"),
        ("seed", "--set seed: write it as section.key=value"),
        ("agent.gamma.x=1", "--set agent.gamma.x=1: agent.gamma: takes one value"),
        ("env.stage=9-9", "--set env.stage=9-9: env.stage: is '9-9'"),
    ]:
        with pytest.raises(UserError, match=message.split(":")[0]) as caught:
            parse_config("", "x", [override])
        assert message in str(caught.value)
    assert with_overrides(config, ["seed=9"], "x") == dataclasses.replace(config, seed=9)


def test_unreadable_files(tmp_path: Path) -> None:
    for content, message in [
        (b"seed: \xff\xfe", "not UTF-8"),
        (b"a" * 2_000_000, "too large"),
        (b"\x00\x01", "not valid YAML"),
    ]:
        path = tmp_path / "x.yaml"
        path.write_bytes(content)
        with pytest.raises(UserError, match=message):
            load_config(path)
    with pytest.raises(UserError, match="cannot read"):
        load_config(tmp_path / "missing.yaml")
    with pytest.raises(UserError, match="cannot read"):
        load_config(tmp_path)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        parse_config(text, "x.yaml")
    except UserError as error:
        assert len(str(error).splitlines()) == 1


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([key for key, _default, _doc in option_rows()]),
    st.one_of(
        st.text(max_size=20),
        st.integers().map(str),
        st.floats().map(str),
        st.sampled_from(["null", "true", "[]", "{}", "[a, b]", "auto", "1-2"]),
    ),
)
def test_any_value_for_any_key_is_taken_or_refused_in_one_line(key: str, value: str) -> None:
    try:
        config = parse_config("", "x.yaml", [f"{key}={value}"])
    except UserError as error:
        assert len(str(error).splitlines()) == 1
    else:
        assert parse_config(dump_config(config), "again.yaml") == config
