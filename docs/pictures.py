"""The pictures of these pages, each from a real run: `python docs/pictures.py [panel|film|ppo|impala|cloning]`.

They are written to `docs/images`; the runs themselves go to a temporary folder.
"""

from __future__ import annotations

import re
import shutil
import sys
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory

from millstream import assembly, training
from millstream.config import Experiment
from millstream.core.ports import Clock
from millstream.core.topics import Report
from millstream.doors.cli import main
from millstream.doors.display import export_svg
from millstream.telemetry.progress import Progress

IMAGES = Path(__file__).parent / "images"
COMMAND = "mill train CartPole-v1"
_CURVE = "mill train CartPole-v1 --algo {} --seeds 5 --target none --total-steps {} --set learning_rate_end=0"
CURVES = {"ppo": _CURVE.format("ppo", 200000), "impala": _CURVE.format("impala", 1000000)}
"""Far beyond the target, with a step size that goes down to nothing."""
CLONING = (
    "mill train CartPole-v1",
    "mill export-data latest --out ./expert --episodes 50",
    "mill train CartPole-v1 --algo cloning --data ./expert --total-steps 60000 --eval-every 2500 --eval-episodes 20 "
    "--set learning_starts=250 --set gradients=4",
)
"""A player, what it did, and one that learns from that alone."""


class Photographer:
    """A watcher that draws the live panel the moment the return passes 400."""

    def __init__(self, progress: Progress, clock: Clock) -> None:
        self.progress, self.clock, self.done = progress, clock, False

    def write(self, report: Report) -> None:
        """All is read from the progress."""

    def step(self) -> int:
        """Take the picture once."""
        if not self.done and (self.progress.train_return or 0) > 400:
            self.done = True
            path = IMAGES / "panel.svg"
            title = "CartPole-v1 · ppo · processes · seed 1"
            export_svg(path, self.progress, title, width=92, now=self.clock.now(), command=COMMAND)
            path.write_text(_self_contained(path.read_text()))
        return 0

    def close(self) -> None:
        """The picture is on disk."""


def panel(folder: str) -> None:
    """The live panel of `mill train CartPole-v1`."""
    training.start(_experiment(folder), watch=[Photographer])


def film(folder: str) -> None:
    """The policy of such a run, playing: every fourth frame of its first six seconds."""
    from PIL import Image

    run = training.start(_experiment(folder))
    whole = Image.open(training.record(run.folder, run.folder / "film.gif"))
    frames = []
    for index in range(0, min(whole.n_frames, 300), 4):
        whole.seek(index)
        frames.append(whole.convert("RGB").resize((300, 200)).quantize(32))
    frames[0].save(IMAGES / "cartpole.gif", save_all=True, append_images=frames[1:], duration=80, loop=0, optimize=True)


def curve(folder: str, algo: str) -> None:
    """Five seeds of an algorithm on CartPole-v1, by the command that stands on its page."""
    main([*CURVES[algo].split()[1:], "--folder", folder, "--quiet"])
    (drawn,) = Path(folder).glob("plots/*.png")
    shutil.copy(drawn, IMAGES / f"{algo}.png")


def cloning(folder: str) -> None:
    """One run of cloning, by the commands that stand on its page."""
    with chdir(folder):
        for command in CLONING:
            main(command.split()[1:])
        (drawn,) = Path().glob("runs/*cloning*/plots/run.png")
        shutil.copy(drawn, IMAGES / "cloning.png")


def _experiment(folder: str) -> Experiment:
    return assembly.experiment(None, {"env.id": "CartPole-v1", "folder": folder})


def _self_contained(svg: str) -> str:
    """Without the web fonts that rich names: a picture should ask nothing of the network."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code, monospace", "monospace").replace("font-family: arial", "font-family: sans-serif")


if __name__ == "__main__":
    drawn_alone = {"panel": panel, "film": film, "cloning": cloning}
    for name in sys.argv[1:] or (*drawn_alone, *CURVES):
        with TemporaryDirectory() as place:
            drawn_alone[name](place) if name in drawn_alone else curve(place, name)
