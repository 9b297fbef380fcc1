"""The progress bar."""

import io

from marginpursuit._progress_bar import ProgressBar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_bar_shows_progress_and_remaining_time(monkeypatch):
    now = iter([0.0, 30.0, 60.0, 61.0])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    stream = Terminal()
    with ProgressBar("fits", stream=stream) as reached:
        reached(10, 100)  # done before the start: not used for the rate
        reached(20, 100)
        reached(40, 100)
        reached(100, 100)
    drawings = stream.getvalue().split("\r\x1b[K")[1:]
    assert "10 of 100" in drawings[0]
    assert "left" not in drawings[0]
    assert drawings[1].endswith("20 of 100  4:00 left")
    assert drawings[2].endswith("40 of 100  2:00 left")
    assert "100 %" in drawings[3]
    assert stream.getvalue().endswith("\n")


def test_bar_draws_nothing_without_a_terminal():
    stream = io.StringIO()
    with ProgressBar("file", "B", stream) as reached:
        reached(1, None)
    assert stream.getvalue() == ""
    terminal = Terminal()
    with ProgressBar("file", "B", terminal) as reached:
        reached(2_500_000, None)
    assert "2.5 MB" in terminal.getvalue()
