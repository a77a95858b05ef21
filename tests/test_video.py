"""Videos: decoded again and looked at."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np
import pytest

from mario_ddqn.env import MarioEnv
from mario_ddqn.errors import UserError
from mario_ddqn.video import VideoWriter


def record(path: Path, frames: int) -> list[np.ndarray]:
    env = MarioEnv("1-1", actions=["right+B"])
    writer = VideoWriter(path, scale=2)
    pictures: list[np.ndarray] = []
    env.reset()
    env.on_frame = lambda picture: (pictures.append(picture), writer.add(picture))
    for _ in range(frames):
        env.step(0)
    writer.finish()
    return pictures


def decode(path: Path) -> tuple[tuple, list[np.ndarray]]:
    """((codec, pixel format, pictures a second), pictures)."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        about = (stream.codec_context.name, stream.pix_fmt, stream.average_rate)
        return about, [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]


def test_mp4_plays_in_a_browser_and_shows_every_frame(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "run.mp4"
    pictures = record(path, 90)
    about, frames = decode(path)
    assert about == ("h264", "yuv420p", 60)
    assert len(frames) == 90
    assert frames[0].shape == (448, 480, 3)
    for number in (0, 40, 89):
        original = pictures[number].repeat(2, 0).repeat(2, 1).astype(int)
        assert np.abs(frames[number] - original).mean() < 6
    assert np.abs(frames[0].astype(int) - frames[89]).mean() > 5
    assert list(path.parent.iterdir()) == [path]


def test_gif_has_the_colours_of_the_game(tmp_path: Path) -> None:
    path = tmp_path / "run.gif"
    pictures = record(path, 40)
    _, frames = decode(path)
    assert len(frames) == 20
    original = pictures[39].repeat(2, 0).repeat(2, 1).astype(int)
    assert np.abs(frames[-1] - original).mean() < 3


def test_nothing_is_left_of_a_discarded_video(tmp_path: Path) -> None:
    writer = VideoWriter(tmp_path / "x.mp4")
    writer.add(np.zeros((224, 240, 3), np.uint8))
    writer.discard()
    assert list(tmp_path.iterdir()) == []


def test_names_and_places_that_can_not_be_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"\.mp4 or \.gif"):
        VideoWriter(tmp_path / "x.avi")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        VideoWriter(tmp_path / "file" / "x.mp4")
