"""`mill service`: what it lists, and how it says that it cannot serve."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Mill

pytest.importorskip("grpc")


def test_services_are_listed_with_their_ports(mill: Mill) -> None:
    assert "parameters  50055" in mill("service").stdout
    [listed] = json.loads(mill("service", "--json").stdout)["services"]
    assert (listed["name"], listed["port"]) == ("parameters", 50055)
    told = mill("service", "parameters", "--help").stdout
    assert "--checkpoint-seconds" in told and "How many different workers make a round. (1)" in told


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["paramters"], "invalid choice: 'paramters'"),
        (["parameters", "--quorm", "3"], "unknown option '--quorm'; did you mean --quorum"),
        (["parameters", "--quorum", "three"], "quorum should be a whole number, got 'three'"),
        (["parameters", "--port", "99999"], "port should be at least 0 and at most 65535"),
        (["parameters", "--aggregation", "avarage", "--mode", "sync"], "did you mean average"),
        (["parameters", "--host", "0.0.0.0"], "needs a token: put one into a file and name it by --token-file"),
        (["parameters", "--host", "no.such.host.invalid", "--token-file", "good"], "cannot listen at no.such.host"),
        (["parameters", "--token-file", "nowhere"], "the token file nowhere cannot be read: No such file"),
        (["parameters", "--token-file", "empty"], "the token file empty should hold one word of ASCII"),
        (["parameters", "--token-file", "two"], "the token file two should hold one word of ASCII"),
        (["parameters", "--token-file", "short"], "a token has at least 16 characters"),
        (["parameters", "--port", "0", "--checkpoint", "good"], "good is no whole checkpoint of a parameter server"),
        (["parameters", "--port", "0", "--tls-key", "good"], "a certificate and its key go together"),
        (["parameters", "--port", "0", "--tls-key", "good", "--tls-certificate", "good"], "certificate is no good"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(mill: Mill, tmp_path: Path, words: list[str], text: str) -> None:
    files = {"good": "a-token-that-is-long-enough\n", "empty": "\n", "two": "two words are no token", "short": "short"}
    for name, body in files.items():
        (tmp_path / name).write_text(body)
    done = mill("service", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("mill: ") and done.stderr.count("\n") == 1 and text in done.stderr


def test_a_port_that_is_taken_is_one_line_and_the_checkpoint_is_left_alone(mill: Mill, tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b"as it was")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = mill("service", "parameters", "--port", port, "--checkpoint", "kept")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"cannot listen at 127.0.0.1:{port}: Address already in use; choose another --port" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["kept"] and (tmp_path / "kept").read_bytes() == b"as it was"


def test_without_grpc_it_is_said_what_to_install(tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['grpc'] = None; "
    command = hidden + "from millstream.doors.cli import main; sys.exit(main(sys.argv[1:]))"
    listed, served, imported = (
        subprocess.run([sys.executable, "-c", *words], cwd=tmp_path, capture_output=True, text=True)
        for words in (
            [command, "service"],
            [command, "service", "parameters", "--port", "0"],
            [hidden + "import millstream.wires.grpc"],
        )
    )
    assert listed.returncode == 0 and "parameters" in listed.stdout
    assert served.returncode == 2 and served.stderr.count("\n") == 1
    assert served.stderr.startswith("mill: gRPC is not installed; run: pip install 'millstream[grpc]'")
    assert "MissingPart: gRPC is not installed" in imported.stderr
