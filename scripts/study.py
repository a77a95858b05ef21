"""Trains a list of configurations and seeds one after the other, evaluates them, draws curves.

    python scripts/study.py configs/studies/1-1.yaml --out studies/1-1

The study file names the minutes of training after which the best checkpoint so far is
evaluated, the clear rate that is `enough` to leave out the later of them, the stage, the
seeds, the evaluation, and the runs: each a configuration with changes (`set`), or
`peer: sb3`. Minutes, stage and seeds may be a run's own; changes of the study come before a
run's. Each training has the machine for itself. A study that was stopped goes on when it is
started again: finished runs are kept, the one under way is resumed. Its folder then holds
results.csv (a row a run, seed and time), curves.csv (every evaluation of the trainings),
table.md and curves.png (mean and range over the seeds).
Needs `pip install -e '.[study]'`; peers need `.[bench]` too.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import signal
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import yaml

from mario_ddqn.checkpoint import find_checkpoint

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Run:
    """A configuration of a study."""

    name: str
    minutes: list[float]
    seeds: list[int]
    stage: str
    config: str | None = None
    peer: str | None = None
    set: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Study:
    """What a study file says."""

    episodes: int
    evaluation_seed: int
    runs: list[Run]
    enough: float | None = None


def main() -> int:
    """Runs what is left to do of the study and writes its tables; exit code 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="a YAML file, see configs/studies")
    parser.add_argument("--out", type=Path, required=True, help="folder of the study")
    parser.add_argument("--tables-only", action="store_true", help="of what is finished")
    options = parser.parse_args()
    study = read_study(options.study)
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        failed = work(study, options.out, only_tables=options.tables_only)
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    print((options.out / "table.md").read_text())
    return 1 if failed else 0


def work(study: Study, out: Path, *, only_tables: bool) -> int:
    """Trains what is not finished, writes the tables after each; returns how many failed."""
    failed = 0
    # Seed by seed, so that a stopped study has something of every run.
    for seed in sorted({seed for run in study.runs for seed in run.seeds}):
        for run in study.runs:
            folder = run_folder(out, run, seed)
            if seed not in run.seeds or only_tables or _finished(study, run, folder):
                continue
            print(f"{run.name}, seed {seed}", file=sys.stderr, flush=True)
            try:
                train(study, run, seed, folder)
            except subprocess.CalledProcessError as error:
                failed += 1
                print(f"failed: {error}", file=sys.stderr, flush=True)
            write_tables(study, out)
    write_tables(study, out)
    return failed


def read_study(path: Path) -> Study:
    """Reads a study file; a run's minutes, seeds and stage default to the study's."""
    content = yaml.safe_load(path.read_text())
    default = {key: content.pop(key) for key in ("minutes", "seeds", "stage") if key in content}
    changes = content.pop("set", [])
    runs = [
        Run(name, **{**default, **run, "set": [*changes, *run.get("set", [])]})
        for name, run in content.pop("runs").items()
    ]
    return Study(runs=runs, **content)


def run_folder(out: Path, run: Run, seed: int) -> Path:
    """Where one training of a study lies."""
    return out / re.sub(r"[^\w.-]+", "-", run.name) / f"seed-{seed}"


# -- training ------------------------------------------------------------------


def train(study: Study, run: Run, seed: int, folder: Path) -> None:
    """Trains, or goes on, from one of the run's times to the next, and evaluates at each.

    Raises:
        CalledProcessError: the training or the evaluation failed.
        KeyboardInterrupt: the training was stopped before its time.
    """
    if run.peer is not None:
        _train_peer(study, run, seed, folder)
        return
    for minutes in run.minutes:
        if not _result(folder, minutes).exists() and not _finished(study, run, folder):
            _train_until(minutes, run, seed, folder)
            _evaluate(minutes, study, run, folder)


def _result(folder: Path, minutes: float) -> Path:
    return folder / f"result-{minutes:g}.json"


def _finished(study: Study, run: Run, folder: Path) -> bool:
    """Whether the training was evaluated at the run's last time, or cleared enough before."""
    if _result(folder, run.minutes[-1]).exists():
        return True
    rates = [
        result["greedy_clears"] / result["greedy_episodes_played"]
        for minutes in run.minutes
        for result in _lines(_result(folder, minutes))
    ]
    return study.enough is not None and any(rate >= study.enough for rate in rates)


def _train_until(minutes: float, run: Run, seed: int, folder: Path) -> None:
    command = [sys.executable, "-m", "mario_ddqn.train_cli"]
    if any(folder.glob("step-*.chkpt")):
        command += ["--resume", str(folder), "--set", f"train.minutes={minutes}"]
    else:
        command += ["--config", str(ROOT / str(run.config)), "--stage", run.stage]
        command += ["--runs", str(folder.parent), "--name", folder.name, "--seed", str(seed)]
        for setting in [*run.set, f"train.minutes={minutes}"]:
            command += ["--set", setting]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.log").open("a") as log:
        _run(command, log)
    if find_checkpoint(folder)[1]["seconds"] < 60 * minutes:
        raise KeyboardInterrupt


def _evaluate(minutes: float, study: Study, run: Run, folder: Path) -> None:
    checkpoint = find_checkpoint(folder, prefer_best=True)[0]
    output = folder / f"evaluation-{minutes:g}.json"
    command = [sys.executable, str(ROOT / "scripts" / "evaluate.py"), str(checkpoint)]
    command += ["--stage", run.stage, "--episodes", str(study.episodes)]
    command += ["--seed", str(study.evaluation_seed), "--json", str(output)]
    subprocess.run(command, check=True, stdout=sys.stderr)
    played = json.loads(output.read_text())
    flags = _lines(folder / "flags.jsonl")
    result = {
        "checkpoint": checkpoint.name,
        "first_flag_step": flags[0]["step"] if flags else None,
        "steps": find_checkpoint(folder)[1]["steps"],
        **{f"{name}_{key}": played[play][key] for name, play in _PLAYS.items() for key in _KEYS},
    }
    _result(folder, minutes).write_text(json.dumps(result) + "\n")


def _run(command: list[str], log: TextIO) -> None:
    """Waits for a training; a Ctrl-C is handed on to it as SIGTERM, so that it saves first.

    Started in the background, it would ignore SIGINT until its own handler is there.
    """
    # Of a session of its own, or a terminal's Ctrl-C would reach it twice.
    process = subprocess.Popen(command, stderr=log, start_new_session=True)
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if code:
        raise subprocess.CalledProcessError(code, command)


_PLAYS = {"greedy": "greedy", "sticky": "greedy, sticky actions 0.25"}
_KEYS = ("clears", "episodes_played", "clear_rate_interval", "mean_x", "mean_time_left")


def _train_peer(study: Study, run: Run, seed: int, folder: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "peer_learning.py")]
    command += ["--seconds", str(60 * run.minutes[-1]), "--seed", str(seed)]
    command += ["--every-minutes", "5"]
    command += ["--stage", run.stage, "--episodes", str(study.episodes)]
    command += ["--evaluation-seed", str(study.evaluation_seed)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    content = json.loads(output.splitlines()[-1])
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(evaluation) for evaluation in content["evaluations"]]
    (folder / "evaluations.jsonl").write_text("\n".join(lines) + "\n")
    _result(folder, run.minutes[-1]).write_text(json.dumps(content["result"]) + "\n")


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# -- tables and curves ---------------------------------------------------------


def write_tables(study: Study, out: Path) -> None:
    """results.csv, curves.csv, table.md and curves.png of what is finished."""
    results: list[dict[str, Any]] = []
    curves: list[dict[str, Any]] = []
    for run in study.runs:
        for seed in run.seeds:
            folder = run_folder(out, run, seed)
            key = {"run": run.name, "seed": seed}
            curve = _lines(folder / "evaluations.jsonl")
            for minutes in run.minutes:
                for result in _lines(_result(folder, minutes)):
                    rates = [at["clear_rate"] for at in curve if at["step"] <= result["steps"]]
                    mean = statistics.mean(rates) if rates else None
                    results.append(
                        {**key, "minutes": minutes, **result, "mean_rate_of_training": mean}
                    )
            curves += [{**key, **line} for line in curve]
    _write_csv(out / "results.csv", results)
    _write_csv(out / "curves.csv", curves)
    (out / "table.md").write_text(_table(study, results))
    if curves:
        _draw(study, curves, out / "curves.png")


def _write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    columns = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(rows)


def _table(study: Study, results: list[dict[str, Any]]) -> str:
    lines = [
        f"{_stages(study)}; best checkpoint so far, {study.episodes} greedy episodes, seed "
        f"{study.evaluation_seed}; on the way: mean clear rate of all evaluations up to then",
        "",
        "| run | seed | minutes | cleared | 95% interval | sticky 0.25 | mean x | on the way "
        "| first flag, step | steps |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in results:
        low, high = row["greedy_clear_rate_interval"]
        first, mean = row["first_flag_step"], row["mean_rate_of_training"]
        lines.append(
            f"| {row['run']} | {row['seed']} | {row['minutes']:g} | {row['greedy_clears']} of "
            f"{row['greedy_episodes_played']} | {low:.0%} to {high:.0%} | {row['sticky_clears']} | "
            f"{row['greedy_mean_x']:,.0f} | {'-' if mean is None else f'{mean:.0%}'} | "
            f"{'-' if first is None else f'{first:,}'} | "
            f"{row['steps']:,} |"
        )
    return "\n".join(lines) + "\n"


def _stages(study: Study) -> str:
    return ", ".join(dict.fromkeys(run.stage for run in study.runs))


def _draw(study: Study, curves: list[dict[str, Any]], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    for axis, (key, label) in zip(
        axes, (("mean_x", "mean x, pixels"), ("clear_rate", "cleared")), strict=True
    ):
        for name in dict.fromkeys(row["run"] for row in curves):
            minutes, low, middle, high = _band([row for row in curves if row["run"] == name], key)
            (line,) = axis.plot(minutes, middle, label=name)
            axis.fill_between(minutes, low, high, alpha=0.2, color=line.get_color())
        axis.set(xlabel="minutes of training", ylabel=label, xlim=(0, None), ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    figure.suptitle(f"{_stages(study)}: greedy play while training, mean and range over seeds")
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _band(
    rows: list[dict[str, Any]], key: str
) -> tuple[list[float], list[float], list[float], list[float]]:
    """(minutes, least, mean, most) over seeds, evaluation by evaluation."""
    by_seed: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], []).append((row["seconds"] / 60, row[key]))
    columns = list(zip(*by_seed.values(), strict=False))
    minutes = [statistics.mean(point[0] for point in column) for column in columns]
    values = [[point[1] for point in column] for column in columns]
    return (
        minutes,
        [min(column) for column in values],
        [statistics.mean(column) for column in values],
        [max(column) for column in values],
    )


if __name__ == "__main__":
    sys.exit(main())
