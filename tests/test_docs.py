"""What the pages say is true: snippets run, commands parse, links lead somewhere, tables match the code.

A Python fence whose first line is `# name.py` is a file; the other fences of a page are run as one program, in
their order, beside those files. `<!-- needs NAME -->` before a fence skips its page's program where NAME is missing.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millstream.doors.cli import parser_for

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted(ROOT.glob("docs/**/*.md"))
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
ROOMS = sorted({path.parent.name for path in ROOT.glob("src/millstream/*/__init__.py")} - {"protos"})
LIMIT = 300 * 1024

_FENCE = re.compile(
    r"(?:<!-- needs (?P<needs>\w+) -->\n)?^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_FILE = re.compile(r"# (?P<name>\w+\.py)\n")


@dataclass(frozen=True)
class Fence:
    kind: str
    body: str
    needs: str | None


def fences(page: Path, kind: str) -> list[Fence]:
    found = [
        Fence(match["kind"], match["body"], match["needs"])
        for match in _FENCE.finditer(page.read_text(encoding="utf-8"))
    ]
    return [fence for fence in found if fence.kind == kind]


def lines(page: Path, command: str) -> list[str]:
    """The lines of a page's sh fences that call a command, whole where they are continued, without comments."""
    text = "\n".join(fence.body for fence in fences(page, "sh")).replace("\\\n", " ")
    called = [line.removeprefix("PYTHONPATH=. ").strip() for line in text.splitlines()]
    return [line for line in called if line.split(" ")[0] == command]


def title(path: Path) -> str:
    return str(path.relative_to(ROOT))


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("page", [page for page in PAGES if fences(page, "python")], ids=title)
def test_the_snippets_of_a_page_run(page: Path, tmp_path: Path) -> None:
    program = []
    for fence in fences(page, "python"):
        if fence.needs:
            pytest.importorskip(fence.needs)
        file = _FILE.match(fence.body)
        if file:
            (tmp_path / file["name"]).write_text(fence.body, encoding="utf-8")
        else:
            program.append(fence.body)
    (tmp_path / "page.py").write_text("\n".join(program), encoding="utf-8")
    assert run([sys.executable, "page.py"], tmp_path).strip()


@pytest.mark.parametrize("example", EXAMPLES, ids=title)
def test_an_example_is_short_and_runs(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text(encoding="utf-8").splitlines()) < 60
    assert run([sys.executable, str(example)], tmp_path).strip()


CALLS = [(page, line) for page in PAGES for line in lines(page, "mill")]


@pytest.mark.parametrize(("page", "line"), CALLS, ids=[line for _, line in CALLS])
def test_a_command_line_has_a_command_with_those_options(page: Path, line: str) -> None:
    _, name, *words = shlex.split(line, comments=True)
    _, unknown = parser_for(name).parse_known_args(words)
    assert not unknown


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_a_word_after_make_is_in_the_makefile(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    words = [shlex.split(line, comments=True)[1] for line in lines(page, "make")]
    assert [word for word in words if not re.search(rf"^{re.escape(word)}:", makefile, re.MULTILINE)] == []


@pytest.mark.parametrize("page", PAGES, ids=title)
def test_every_link_and_picture_is_there(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = [match["target"] for match in _LINK.finditer(text) if not match["target"].startswith("https://")]
    assert [target for target in targets if not _leads_somewhere(page, target)] == []


def _leads_somewhere(page: Path, target: str) -> bool:
    name, _, heading = target.partition("#")
    found = page.parent / name if name else page
    if not heading:
        return found.exists()
    headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
    return heading in [re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings]


def test_pictures_are_small() -> None:
    pictures = list(ROOT.glob("docs/images/*"))
    assert pictures
    assert [picture.name for picture in pictures if picture.stat().st_size > LIMIT] == []


def test_a_picture_asks_nothing_of_the_network() -> None:
    for picture in ROOT.glob("docs/images/*.svg"):
        assert not re.search(r"(src|href)\W*\w*\W*https?://|url\(\W*http", picture.read_text(encoding="utf-8"))


def test_tables_of_settings_are_what_the_code_declares() -> None:
    settings = _module(ROOT / "docs" / "settings.py")
    pages = [page for page in PAGES if "<!-- settings " in page.read_text(encoding="utf-8")]
    assert {page.stem for page in pages} >= {"ppo", "impala"}
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert settings.renewed(text) == text, f"{title(page)} is out of date: python docs/settings.py"


def test_the_command_beside_a_curve_is_the_one_that_drew_it() -> None:
    for algo, command in _module(ROOT / "docs" / "pictures.py").CURVES.items():
        assert command in lines(ROOT / "docs" / "algorithms" / f"{algo}.md", "mill")


def test_the_commands_beside_the_curve_of_cloning_drew_it() -> None:
    shown = lines(ROOT / "docs" / "algorithms" / "cloning.md", "mill")
    assert shown == list(_module(ROOT / "docs" / "pictures.py").CLONING)


def test_every_room_has_a_page_and_stands_on_the_map() -> None:
    chart = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    assert sorted(page.stem for page in ROOT.glob("docs/rooms/*.md")) == ROOMS
    assert [room for room in ROOMS if f"(rooms/{room}.md)" not in chart] == []


def test_every_file_named_on_a_rooms_page_is_in_the_room() -> None:
    missing = []
    for page in ROOT.glob("docs/rooms/*.md"):
        for row in re.findall(r"^\|.*?\| (.*?) \|", page.read_text(encoding="utf-8"), re.MULTILINE):
            room = ROOT / "src" / "millstream" / page.stem
            missing += [
                f"{page.stem}: {name}" for name in re.findall(r"`([\w/]+\.py)`", row) if not (room / name).exists()
            ]
    assert missing == []


def test_every_original_name_has_a_place_that_exists() -> None:
    chart = (ROOT / "docs" / "map.md").read_text(encoding="utf-8").partition("## Names of the four original designs")[2]
    rows = [row for row in chart.splitlines() if row.startswith("| ")][1:]
    places = [_LINK.search(row.split("|")[2]) for row in rows]
    assert len(rows) > 5 and all(places)
    assert [place["target"] for place in places if place and not (ROOT / "docs" / place["target"]).exists()] == []


def _module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"docs_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
