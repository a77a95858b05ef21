"""Two trainings in one folder: the second is refused, a crash locks nothing."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from mario_ddqn.errors import UserError
from mario_ddqn.lock import RunLock


def test_second_is_refused_and_first_gives_it_back(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        with pytest.raises(UserError, match=f"process {os.getpid()} on .* trains in this folder"):
            RunLock(tmp_path).__enter__()
        assert (tmp_path / "lock").exists()
    assert not (tmp_path / "lock").exists()
    with RunLock(tmp_path):
        pass


def test_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from mario_ddqn.lock import RunLock; "
        "RunLock(Path(sys.argv[1])).__enter__(); print('held', flush=True); time.sleep(1000)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    with pytest.raises(UserError, match=f"process {process.pid}"):
        RunLock(tmp_path).__enter__()
    process.kill()
    process.wait()
    process.stdout.close()
    with RunLock(tmp_path):
        assert json.loads((tmp_path / "lock").read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', "\x00"])
def test_broken_lock_is_taken_over(tmp_path: Path, content: str) -> None:
    (tmp_path / "lock").write_text(content)
    with RunLock(tmp_path):
        pass


def test_number_used_again_and_other_hosts(tmp_path: Path) -> None:
    me = psutil.Process()
    mine = {"pid": me.pid, "host": socket.gethostname(), "started": me.create_time() - 1000}
    (tmp_path / "lock").write_text(json.dumps(mine))
    with RunLock(tmp_path):
        pass
    (tmp_path / "lock").write_text(json.dumps({**mine, "host": "elsewhere"}))
    with pytest.raises(UserError, match=r"on elsewhere .*delete"):
        RunLock(tmp_path).__enter__()


def test_folder_that_can_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        RunLock(tmp_path / "missing").__enter__()
