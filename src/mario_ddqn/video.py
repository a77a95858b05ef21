"""Videos of play: H.264 mp4 that any browser shows, or gif."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from mario_ddqn.errors import UserError
from mario_ddqn.files import TEMPORARY_SUFFIX

FORMATS = (".mp4", ".gif")
_FPS = 60
# Browsers slow down gifs with frames shorter than 2/100 s; 30 a second is safe.
_GIF_FPS = 30


class VideoWriter:
    """Writes RGB pictures at 60 frames a second; the file appears when it is finished.

    gif keeps every second picture. Pictures are enlarged `scale` times, pixel by pixel.
    """

    def __init__(self, path: Path, *, scale: int = 2) -> None:
        """Opens the video.

        Raises:
            UserError: the name ends neither in .mp4 nor .gif, or can't be written.
        """
        if path.suffix not in FORMATS:
            raise UserError(f"{path}: a video's name ends in {' or '.join(FORMATS)}")
        self.path = path
        self._scale = scale
        self._gif = path.suffix == ".gif"
        self._temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        self._pictures = 0
        self._stream: av.VideoStream | None = None
        self._palette: av.filter.Graph | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._container = av.open(
                str(self._temporary), "w", format="gif" if self._gif else "mp4"
            )
        except (OSError, av.FFmpegError) as error:
            raise UserError(f"{path}: cannot write the video ({error.strerror})") from error

    def add(self, picture: np.ndarray) -> None:
        """Appends a picture, uint8 RGB [height, width, 3], the same size each time.

        Raises:
            UserError: the disk is full, or the folder gone; nothing is left of the video.
        """
        self._pictures += 1
        if self._gif and self._pictures % (_FPS // _GIF_FPS):
            return
        with self._writing():
            self._append(picture)

    def _append(self, picture: np.ndarray) -> None:
        big = picture.repeat(self._scale, 0).repeat(self._scale, 1)
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(big), format="rgb24")
        if self._stream is None:
            self._stream = self._open_stream(big.shape[1], big.shape[0])
        if self._palette is None:
            self._encode(frame)
        else:
            frame.pts = None
            self._palette.push(frame)

    def finish(self) -> Path:
        """Ends the file and gives it its name.

        Raises:
            UserError: as `add`.
        """
        with self._writing():
            self._end()
            self._temporary.replace(self.path)
        return self.path

    def _end(self) -> None:
        if self._stream is not None:
            if self._palette is not None:
                self._palette.push(None)
                while True:
                    try:
                        frame = self._palette.pull()
                    except (av.BlockingIOError, av.EOFError):
                        break
                    assert isinstance(frame, av.VideoFrame)
                    self._encode(frame)
            self._container.mux(self._stream.encode(None))
        self._container.close()

    def discard(self) -> None:
        """Gives the video up; nothing is left of it."""
        with contextlib.suppress(OSError, av.FFmpegError):
            self._container.close()
        self._temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (OSError, av.FFmpegError) as error:
            self.discard()
            raise UserError(
                f"{self.path}: the video can't be written on ({error.strerror or error}); make "
                "room, or give another place with --out"
            ) from error

    def _open_stream(self, width: int, height: int) -> av.VideoStream:
        rate = _GIF_FPS if self._gif else _FPS
        stream: av.VideoStream
        if self._gif:
            stream = self._container.add_stream("gif", rate=rate)
            stream.pix_fmt = "pal8"
            self._palette = _palette_graph(width, height, rate)
        else:
            stream = self._container.add_stream("libx264", rate=rate, options={"crf": "20"})
            stream.pix_fmt = "yuv420p"
            stream.codec_context.thread_count = 1
        stream.width, stream.height = width, height
        return stream

    def _encode(self, frame: av.VideoFrame) -> None:
        assert self._stream is not None
        frame.pts = None
        self._container.mux(self._stream.encode(frame))


def _palette_graph(width: int, height: int, rate: int) -> av.filter.Graph:
    """One palette for the whole video, made from all its colours: the NES has 54."""
    graph = av.filter.Graph()
    source = graph.add_buffer(
        width=width, height=height, format=av.VideoFormat("rgb24"), time_base=Fraction(1, rate)
    )
    split = graph.add("split")
    make = graph.add("palettegen", "stats_mode=full")
    use = graph.add("paletteuse", "dither=none")
    sink = graph.add("buffersink")
    source.link_to(split)
    split.link_to(use, 0, 0)
    split.link_to(make, 1, 0)
    make.link_to(use, 0, 1)
    use.link_to(sink)
    graph.configure()
    return graph
