"""YAML to typed configuration and back; every mistake is told with file, line and key."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from mario_ddqn.actions import action_names
from mario_ddqn.config import Config
from mario_ddqn.env_names import STAGES, WHOLE_GAME
from mario_ddqn.errors import UserError

_MAX_BYTES = 1_000_000
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_BOOLS = {"true": True, "false": False}
_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?[\d_]*|\.\d[\d_]*)([eE][-+]?\d+)?")
_WIDTH = 88


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Reads a YAML file; `overrides` are `section.key=value` and win over the file.

    Raises:
        UserError: with file, line, key, what is allowed, and the nearest known key.
    """
    return parse_config(_read(path), str(path), overrides)


def parse_config(text: str, source: str, overrides: Sequence[str] = ()) -> Config:
    """`load_config` for YAML already read; `source` names it in messages."""
    values = _values(_compose(text, source), source)
    for override in overrides:
        key, equals, value = override.partition("=")
        where = f"--set {override}"
        if not equals:
            raise UserError(f"{where}: write it as section.key=value")
        _merge(values, _nested(key.strip().split("."), _compose(value, where), where))
    config: Config = _build(Config, values, "")
    _check_together(config, lambda key: _where_is(values, key, source))
    return config


def with_overrides(config: Config, overrides: Sequence[str], source: str) -> Config:
    """`config` with some keys changed, checked like a file; `source` names it in messages."""
    return parse_config(dump_config(config), source, overrides)


def dump_config(config: Config) -> str:
    """Commented YAML of every option, such that parsing it gives `config` again."""
    return "\n".join(_dump(config, 0)) + "\n"


def option_rows(kind: type = Config, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(key, default, documentation) of every option, in order."""
    for field in dataclasses.fields(kind):
        key = f"{prefix}{field.name}"
        kind_of = _hints(kind)[field.name]
        if dataclasses.is_dataclass(kind_of):
            yield from option_rows(typing.cast(type, kind_of), f"{key}.")
        else:
            yield key, _scalar(_default(field)), field.metadata["doc"]


# -- reading -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Value:
    """A scalar or list as written, and where."""

    node: yaml.Node
    where: str


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise UserError(f"{path}: over 1 MB, too large for a configuration")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"{path}: cannot read the configuration ({reason})") from error


def _compose(text: str, source: str) -> yaml.Node | None:
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            mark = event.start_mark
            line = f"{source}:{mark.line + 1 if mark else 1}"
            if isinstance(event, yaml.AliasEvent):
                raise UserError(f"{line}: aliases (*{event.anchor}) are not allowed; write it out")
            tag = getattr(event, "tag", None)
            if tag is not None:
                raise UserError(f"{line}: tags ({tag}) are not allowed; write the plain value")
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        problem_mark = error.problem_mark or error.context_mark
        line = f":{problem_mark.line + 1}" if problem_mark else ""
        raise UserError(f"{source}{line}: not valid YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        reason = str(error).splitlines()[0] if str(error) else "nested too deeply"
        raise UserError(f"{source}: not valid YAML: {reason}") from error


def _values(node: yaml.Node | None, source: str) -> dict[str, Any]:
    """Nested dict of `_Value`, without a look at the schema; refuses keys given twice."""
    if node is None:
        return {}
    if not isinstance(node, yaml.MappingNode):
        raise UserError(f"{source}:{node.start_mark.line + 1}: expected `key: value` lines")
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        where = f"{source}:{key_node.start_mark.line + 1}"
        if not isinstance(key_node, yaml.ScalarNode):
            raise UserError(f"{where}: a key must be a plain word")
        if key_node.value in values:
            raise UserError(f"{where}: the key {key_node.value!r} is given twice; remove one")
        if isinstance(value_node, yaml.MappingNode):
            values[key_node.value] = _values(value_node, source)
        else:
            values[key_node.value] = _Value(value_node, where)
    return values


def _nested(keys: list[str], node: yaml.Node | None, where: str) -> dict[str, Any]:
    if isinstance(node, yaml.MappingNode):
        raise UserError(f"{where}: give one value, not a mapping")
    value: Any = _Value(node or yaml.ScalarNode("tag:yaml.org,2002:null", ""), where)
    for key in reversed(keys):
        value = {key: value}
    return typing.cast(dict[str, Any], value)


def _merge(values: dict[str, Any], extra: dict[str, Any]) -> None:
    for key, value in extra.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _merge(values[key], value)
        else:
            values[key] = value


def _build(kind: type, values: dict[str, Any], prefix: str) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    arguments = {}
    for name, value in values.items():
        key = f"{prefix}{name}"
        if name not in fields:
            raise UserError(f"{_where(value)}: {key}: unknown key{_nearest(key, name, fields)}")
        hint = _hints(kind)[name]
        if dataclasses.is_dataclass(hint):
            if not isinstance(value, dict):
                if isinstance(value.node, yaml.ScalarNode) and value.node.value in _NULLS:
                    continue
                raise UserError(
                    f"{value.where}: {key}: is a section; give its keys below it, indented"
                )
            arguments[name] = _build(typing.cast(type, hint), value, f"{key}.")
        elif isinstance(value, dict):
            raise UserError(f"{_where(value)}: {key}: takes one value, not a section")
        else:
            arguments[name] = _convert(value, hint, fields[name], key)
    return kind(**arguments)


def _where(value: Any) -> str:
    while isinstance(value, dict):
        if not value:
            return "configuration"
        value = next(iter(value.values()))
    return str(value.where)


def _nearest(key: str, name: str, fields: dict[str, Any]) -> str:
    close = difflib.get_close_matches(name, fields, 1)
    if close:
        return f"; did you mean {key.removesuffix(name)}{close[0]}?"
    known = [row[0] for row in option_rows()]
    same_name = [row for row in known if row.rpartition(".")[2] == name]
    close = same_name or difflib.get_close_matches(key, known, 1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known here: {', '.join(fields)}"


def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _convert(value: _Value, hint: Any, field: dataclasses.Field, key: str) -> Any:
    is_union = isinstance(hint, types.UnionType)
    kinds = list(typing.get_args(hint)) if is_union else [hint]
    node = value.node
    if isinstance(node, yaml.SequenceNode):
        if list[str] in kinds and all(isinstance(item, yaml.ScalarNode) for item in node.value):
            return [item.value for item in node.value]
        raise UserError(f"{value.where}: {key}: expected {_allowed(kinds, field)}, not a list")
    plain = not getattr(node, "style", None)
    text = node.value
    result = _scalar_of(text, plain, kinds, field)
    if result is _NO_MATCH or not _in_range(result, field):
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        raise UserError(f"{value.where}: {key}: is {shown!r}; expected {_allowed(kinds, field)}")
    return result


_NO_MATCH = object()


def _scalar_of(text: str, plain: bool, kinds: list[Any], field: dataclasses.Field) -> Any:
    if plain and text in _NULLS:
        return None if types.NoneType in kinds else _NO_MATCH
    if plain and bool in kinds and text.lower() in _BOOLS:
        return _BOOLS[text.lower()]
    if plain and (int in kinds or float in kinds) and _NUMBER.fullmatch(text):
        number = float(text.replace("_", ""))
        if int not in kinds:
            return number
        digits = text.replace("_", "").lstrip("+")
        if digits.lstrip("-").isdigit() and len(digits) <= 20:
            return int(digits)
        if number.is_integer() and abs(number) < 2**63:
            return int(number)
        return number if float in kinds else _NO_MATCH
    if str in kinds:
        choices = field.metadata["choices"]
        return text if choices is None or text in choices else _NO_MATCH
    return _NO_MATCH


def _in_range(value: Any, field: dataclasses.Field) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    limits = field.metadata
    return (
        math.isfinite(value)
        and (limits["least"] is None or value >= limits["least"])
        and (limits["most"] is None or value <= limits["most"])
        and (limits["above"] is None or value > limits["above"])
    )


def _allowed(kinds: list[Any], field: dataclasses.Field) -> str:
    limits = field.metadata
    parts = []
    if int in kinds or float in kinds:
        bounds = [
            f"{word} {_number(limits[name])}"
            for name, word in (("least", "at least"), ("above", "above"), ("most", "at most"))
            if limits[name] is not None
        ]
        noun = "a number" if float in kinds else "a whole number"
        parts.append(" ".join([noun, " and ".join(bounds)]).strip())
    if bool in kinds:
        parts.append("true or false")
    if str in kinds:
        parts.append(" | ".join(limits["choices"]) if limits["choices"] else "a text")
    if list[str] in kinds:
        parts.append("a list of texts")
    if types.NoneType in kinds:
        parts.append("null")
    return ", or ".join(parts)


def _where_is(values: dict[str, Any], key: str, source: str) -> str:
    """Where a key is set, or the whole file where it has its default."""
    value: Any = values
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value.where if isinstance(value, _Value) else source


def _check_together(config: Config, where: Callable[[str], str]) -> None:
    """What types and ranges can't tell."""
    if config.env.stage != WHOLE_GAME and config.env.stage not in STAGES:
        raise UserError(
            f"{where('env.stage')}: env.stage: is {config.env.stage!r}; "
            f"expected 1-1 to 8-4, or {WHOLE_GAME}"
        )
    try:
        action_names(config.env.actions)
    except UserError as error:
        raise UserError(f"{where('env.actions')}: env.actions: {error}") from None
    if (config.agent.sync_every is None) == (config.agent.soft_sync is None):
        raise UserError(
            f"{where('agent.soft_sync')}: agent.sync_every, agent.soft_sync: "
            "exactly one of them must be null"
        )
    if config.name is not None and (
        Path(config.name).name != config.name or config.name in (".", "..")
    ):
        raise UserError(f"{where('name')}: name: is {config.name!r}; expected a plain folder name")


# -- writing -------------------------------------------------------------------


def _dump(part: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        comment = [
            f"{indent}# {line}"
            for line in textwrap.wrap(field.metadata["doc"], _WIDTH - len(indent))
        ]
        if dataclasses.is_dataclass(value):
            if depth == 0:
                yield ""
            yield from comment
            yield f"{indent}{field.name}:"
            yield from _dump(value, depth + 1)
        else:
            yield from comment
            yield f"{indent}{field.name}: {_scalar(value)}"


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, list):
        return f"[{', '.join(_scalar(item) for item in value)}]"
    if re.fullmatch(r"[A-Za-z][\w+.-]*|\d-\d", value) and value.lower() not in (*_NULLS, *_BOOLS):
        return str(value)
    quoted: str = yaml.safe_dump(value, default_style='"', width=float("inf"))
    return quoted.strip()


def _number(value: float) -> str:
    return f"{value:_}" if isinstance(value, int) and abs(value) >= 10_000 else repr(value)


def _default(field: dataclasses.Field) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    factory = field.default_factory
    return factory() if factory is not dataclasses.MISSING else None
