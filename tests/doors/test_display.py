import io
import json
import math
import os
import pty
from xml.etree import ElementTree

import pytest
from rich.console import Console

from millstream.doors.display import Display, JsonLines, Lines, display_for, export_svg, line, panel
from millstream.telemetry.progress import Progress

START = 1000.0
TITLE = "CartPole-v1 · ppo · seed 1"


class Hands:
    """A clock that is moved by hand."""

    def __init__(self):
        self.time = 0.0

    def now(self):
        return START + self.time

    def monotonic(self):
        return self.time

    def rest(self, seconds):
        raise AssertionError("a display never waits")


def actor(returns, at=START + 1):
    episodes = [[slot, value, 10] for slot, value in enumerate(returns)]
    seconds = {"env": 0.3, "act": 0.2, "record": 0.1, "wait": 0.4}
    return {"kind": "actor", "actor": 0, "steps": 50_000, "episodes": episodes, "seconds": seconds, "at": at}


def update(**changes):
    return {
        "kind": "update", "update": 7, "version": [0, 7], "steps": 100_000, "stale": 0, "corrected": 0, "samples": 1,
        "lag": 0.5, "lag_max": 1, "queue": 1,
        "lesson": {"policy_loss": -0.0123, "value_loss": 4.5, "entropy": 0.61, "approx_kl": 0.004},
        "hyper": {}, "seconds": {"wait": 0.05, "gradients": 0.85, "apply": 0.1}, "at": START + 2, **changes,
    }  # fmt: skip


EVENT = {"kind": "event", "level": "warning", "text": "actor-0 died [signal 9]; replaced", "at": START + 2}
EVALUATION = {"kind": "evaluation", "steps": 100_000, "version": [0, 7], "episodes": 100, "mean": 480.0, "iqm": 481.0,
              "low": 470.0, "high": 490.0, "returns": [480.0] * 100, "at": START + 2}  # fmt: skip


@pytest.fixture
def progress():
    progress = Progress(started_at=START, total_steps=400_000, target=475.0)
    for report in (actor([20.0] * 100), actor([60.0] * 100, at=START + 2), update(), EVALUATION):
        progress.take(report)
    return progress


def terminal(width=80, height=24):
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height, _environ={"TERM": "xterm"})


def plain(width=200):
    return Console(file=io.StringIO(), width=width)


def drawn(progress, width, events=(), **more):
    console = Console(file=io.StringIO(), width=width)
    console.print(panel(progress, TITLE, events, width, **more))
    return console.file.getvalue()


def test_the_panel_says_everything_that_matters(progress):
    text = drawn(progress, 120)
    for said in (
        TITLE, "60.0 ↗", "target 475", "50,000 steps/s", "policy lag 0.50", "queue 1", "policy -0.0123", "value 4.50",
        "entropy 0.6100", "25 %", "100k of 400k", "0:06 left", "480.0 (470.0 to 490.0)", "env 30 %", "gradients 85 %",
        "The learner limits: it computes gradients 85 % of the time while actors wait 40 %",
    ):  # fmt: skip
        assert said in text, said


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_the_panel_fits_every_width_without_half_a_number(progress, width):
    lines = drawn(progress, width, [EVENT]).splitlines()
    assert max(map(len, lines)) <= width
    if width >= 60:
        assert not any("…" in line for line in lines)


def test_the_panel_of_a_run_that_has_not_begun_promises_nothing():
    text = drawn(Progress(started_at=START), 80)
    assert "no episode has ended yet" in text
    assert "Starting: no rollout has arrived yet." in text
    assert "None" not in text
    assert "nan" not in text


def test_a_run_that_ended_shows_the_time_it_took(progress):
    text = drawn(progress, 80, ended=True)
    assert "in 0:02" in text
    assert "left" not in text


def test_a_target_that_was_reached_is_shown_with_its_step(progress):
    progress.take(actor([500.0] * 100, at=START + 3))
    assert "target 475 reached at 100k" in drawn(progress, 120)


PAUSED = {"kind": "event", "level": "info", "text": "paused", "paused": True, "at": START + 3}


def test_a_paused_run_says_so_and_promises_no_time(progress):
    progress.take(PAUSED)
    text = drawn(progress, 120, now=START + 4)
    assert "seed 1 · PAUSED" in text.splitlines()[0]
    assert "Paused: " in text
    assert "left" not in text and "steps/s" not in text
    assert "paused" in line(progress, START + 4) and "left" not in line(progress, START + 4)


def test_the_terminals_own_ctrl_c_leaves_no_second_border(progress):
    """The cursor rests on an empty line: what the terminal echoes there cannot wrap and scroll."""
    console = terminal()
    display = Display(console, progress, Hands(), TITLE)
    display.step()
    assert console.file.getvalue().rsplit("\n", 1)[-1].strip() == ""
    display.close()


def test_events_stand_below_and_their_brackets_survive(progress):
    last = drawn(progress, 80, [EVENT]).splitlines()[-1]
    assert last.strip() == "0:02  actor-0 died [signal 9]; replaced"


def test_the_display_draws_at_most_eight_times_a_second(progress):
    clock = Hands()
    display = Display(terminal(), progress, clock, TITLE)
    draws = 0
    for tick in range(200):
        clock.time = tick / 100
        draws += display.step()
    display.close()
    assert 15 <= draws <= 17


def test_the_display_needs_no_thread(progress):
    import threading

    before = threading.active_count()
    display = Display(terminal(), progress, Hands(), TITLE)
    display.step()
    assert threading.active_count() == before
    display.close()


def test_a_low_terminal_leaves_events_out_rather_than_the_panel(progress):
    console, clock = terminal(height=15), Hands()
    display = Display(console, progress, clock, TITLE)
    for number in range(6):
        display.write({**EVENT, "text": f"event {number}"})
    display.close()
    text = console.file.getvalue()
    assert "event 5" in text
    assert "event 4" not in text
    assert "The learner limits" in text


def test_the_cursor_comes_back_when_the_display_closes(progress):
    console = terminal()
    display = Display(console, progress, Hands(), TITLE)
    display.step()
    display.close()
    text = console.file.getvalue()
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l") >= 0


def test_a_terminal_gets_the_panel_and_a_pipe_gets_lines(progress):
    clock = Hands()
    parent, child = pty.openpty()
    with os.fdopen(child, "w", encoding="utf-8") as file:
        console = Console(file=file, _environ={"TERM": "xterm"})
        assert isinstance(display_for(console, progress, clock, TITLE), Display)
        dumb = Console(file=file, _environ={"TERM": "dumb"})
        assert isinstance(display_for(dumb, progress, clock, TITLE), Lines)
    os.close(parent)
    assert isinstance(display_for(plain(), progress, clock, TITLE), Lines)


def test_a_terminal_that_cannot_show_blocks_gets_lines(progress):
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    console = Console(file=file, force_terminal=True, _environ={"TERM": "xterm"})
    lines = display_for(console, progress, Hands(), TITLE)
    lines.step()
    lines.write(EVALUATION)
    lines.close()
    file.flush()
    assert b"return 60.0 rising" in file.buffer.getvalue()


def test_lines_come_every_few_seconds_and_at_events(progress):
    console, clock = plain(), Hands()
    lines = Lines(console, progress, clock, every=5.0)
    for tick in range(12):
        clock.time = float(tick)
        lines.step()
    lines.write(EVENT)
    said = console.file.getvalue().splitlines()
    assert len(said) == 4
    assert said[0].startswith("0:02  steps 100,000 of 400,000 (25 %)  return 60.0 rising")
    assert said[-1] == "0:02  warning: actor-0 died [signal 9]; replaced"


def test_lines_say_nothing_before_there_is_anything_to_say():
    console = plain()
    assert Lines(console, Progress(started_at=START), Hands()).step() == 0
    assert console.file.getvalue() == ""


def test_json_lines_are_one_strict_object_a_line(progress):
    out, clock = io.StringIO(), Hands()
    progress.take(update(lesson={"value_loss": math.nan}))
    lines = JsonLines(out, progress, clock, every=1.0)
    lines.step()
    assert lines.step() == 0
    for report in (EVENT, EVALUATION, actor([1.0])):
        lines.write(report)
    lines.close()

    def refuse(constant):
        raise AssertionError(constant)

    said = [json.loads(text, parse_constant=refuse) for text in out.getvalue().splitlines()]
    assert [entry["kind"] for entry in said] == ["progress", "event", "evaluation", "progress"]
    assert said[0]["train_return"] == 60.0
    assert said[0]["lesson"] == {"value_loss": None}
    assert said[0]["limits"].endswith(".")
    assert "returns" not in said[2]


def test_the_panel_becomes_a_picture(progress, tmp_path):
    path = export_svg(tmp_path / "panel.svg", progress, TITLE, [EVENT], width=100)
    text = "".join(ElementTree.parse(path).getroot().itertext()).replace("\xa0", " ")
    assert "CartPole-v1" in text
    assert "actor-0 died" in text
    assert "mill train" in text
