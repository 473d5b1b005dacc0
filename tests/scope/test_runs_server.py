"""The server of runs: this machine only, its own names only, lines as they come, and an end when the training ends."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from undertow.cli import main
from undertow.errors import FormatError, UndertowError
from undertow.scope.runs.command import live_page, show_runs
from undertow.scope.runs.reader import identity
from undertow.scope.runs.records import Header
from undertow.scope.runs.server import MOST_PAGES, RunServer
from undertow.scope.runs.writer import RunWriter

LAYERS = (("0", "convolutional"), ("1", "yolo"))


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    writer = RunWriter(tmp_path / "run", Header("small", "darknet", "small.cfg", "2026-01-01T00:00:00", layers=LAYERS))
    writer.iteration(1, {"loss": 2.5})
    return writer


@pytest.fixture
def server(writer: RunWriter) -> Iterator[RunServer]:
    with RunServer([writer.folder], 0) as server:
        yield server


@pytest.mark.parametrize("flag", [["-size", "64"], ["-dialect", "exact"], ["-seed", "1"]])
def test_flags_of_networks_are_answered(writer: RunWriter, flag: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for path in (writer.folder, writer.path):
        assert main(["scope", str(path), *flag]) == 2
        assert f"{flag[0]} is for networks, and '{path}' is a recorded training" in capsys.readouterr().err


def test_a_port_that_is_taken_leaves_no_run_behind(tmp_path: Path, server: RunServer, writer: RunWriter) -> None:
    before = writer.path.read_bytes()
    anew = RunWriter(writer.folder, Header("small", "darknet", "small.cfg", "2026-01-02T00:00:00", layers=LAYERS))
    assert anew.kept is not None
    with pytest.raises(UndertowError, match="cannot serve on port"), live_page(port_of(server), print) as show:
        show(anew)
    assert writer.path.read_bytes() == before
    assert not anew.kept.exists()


def port_of(server: RunServer) -> int:
    return int(server.url.split(":")[2].strip("/"))


def get(server: RunServer, path: str, host: str | None = None, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=20)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


class Events:
    """A page's stream of events."""

    def __init__(self, server: RunServer, start: int, number: int = 0) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", port_of(server), timeout=20)
        file = identity(server.files[number])
        self.connection.request("GET", f"/events?number={number}&from={start}&file={file}")
        self.answer = self.connection.getresponse()

    def next(self) -> dict[str, str]:
        """The fields of the next event; comments are passed over."""
        fields: dict[str, str] = {}
        while True:
            line = self.answer.readline().decode().rstrip("\n")
            if line.startswith(":"):
                continue
            if not line:
                if fields:
                    return fields
                assert not self.answer.closed
                continue
            name, _, value = line.partition(": ")
            fields[name] = value


def told(server: RunServer) -> tuple[dict[str, object], list[dict[str, object]]]:
    status, body = get(server, "/run?number=0")
    assert status == 200
    head, *lines = [json.loads(line) for line in body.splitlines()]
    return head, lines


def test_the_page_and_its_parts(server: RunServer) -> None:
    status, page = get(server, "/")
    assert status == 200
    assert b'"runs/main": "/modules/runs/main.js"' in page
    for path in ("/modules/runs/main.js", "/modules/scope/chart.js", "/modules/uplot.js", "/styles/page/runs/runs.css"):
        assert get(server, path)[0] == 200, path
    for path in ("/nothing", "/../pyproject.toml", "/styles/../../errors.py", "/modules/%2e%2e/x.js"):
        assert get(server, path)[0] == 404, path


def test_only_under_its_own_names(server: RunServer) -> None:
    port = port_of(server)
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        assert get(server, "/run?number=0", host)[0] == 200
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}"):
        for path in ("/", "/run?number=0", "/events?number=0&from=0"):
            assert get(server, path, host)[0] == 403
    assert get(server, "/", method="POST")[0] == 501
    # Bound to all addresses, it would be found here too.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=2)


WRONG = (
    "/run", "/run?number=1", "/run?number=-1", "/run?number=x", "/events?number=7&from=0", "/events?number=0&from=-1",
    "/events?number=0&from=1e9", f"/events?number=0&from={'9' * 40}",
)  # fmt: skip


def test_wrong_questions_are_answered(server: RunServer) -> None:
    for path in WRONG:
        status, body = get(server, path)
        assert status == 400, path
        assert json.loads(body)["error"]


def test_lines_come_as_they_are_written(server: RunServer, writer: RunWriter) -> None:
    head, lines = told(server)
    assert [line["k"] for line in lines] == ["run", "iteration"]
    assert head == {
        "file": identity(writer.path),
        "folder": "run",
        "offset": writer.path.stat().st_size,
        "thinned": [1, 1],
        "damaged": 0,
    }
    pages = [Events(server, int(str(head["offset"]))) for _ in range(2)]
    writer.iteration(2, {"loss": 1.5})
    for page in pages:
        event = page.next()
        assert json.loads(event["data"]) == {"k": "iteration", "i": 2, "loss": 1.5}
        assert int(event["id"]) == writer.path.stat().st_size
    # Half a line is not sent before its end is there.
    line = b'{"k":"iteration","i":3,"loss":1}\n'
    with open(writer.path, "ab") as stream:
        stream.write(line[:12])
        stream.flush()
        time.sleep(0.7)
        stream.write(line[12:])
    assert json.loads(pages[0].next()["data"])["i"] == 3
    # After a break a page goes on where it was.
    again = Events(server, int(event["id"]))
    assert json.loads(again.next()["data"])["i"] == 3


def test_another_run_in_its_place(server: RunServer, writer: RunWriter) -> None:
    page = Events(server, writer.path.stat().st_size)
    before = identity(writer.path)
    RunWriter(writer.folder, writer.header)
    # One that comes late, with what it knows of the file before.
    assert b"event: restart" in get(server, f"/events?number=0&from=5&file={before}")[1]
    event = page.next()
    if "event" not in event:  # what the new run wrote first may be read before the change of files is seen
        event = page.next()
    assert event["event"] == "restart"
    assert len(told(server)[1]) == 2  # the header, and the note about the run that is kept


def test_the_end_of_a_training(writer: RunWriter) -> None:
    texts: list[str] = []
    with live_page(0, texts.append) as show:
        show(writer)
        url = texts[0].split()[4]
        page = http.client.HTTPConnection("127.0.0.1", int(url.split(":")[2].strip("/")), timeout=20)
        page.request("GET", f"/events?number=0&from=0&file={identity(writer.path)}")
        answer = page.getresponse()
        answer.readline()
        before = time.monotonic()
    assert time.monotonic() - before < 5
    assert b"event: closed" in answer.read()
    assert f"later: undertow scope {writer.folder}" in texts[0]
    names = [thread.name for thread in threading.enumerate()]
    assert "undertow-scope" not in names


def test_a_browser_that_reads_nothing_holds_nobody_up(server: RunServer, writer: RunWriter) -> None:
    page = socket.create_connection(("127.0.0.1", port_of(server)))
    file = identity(writer.path)
    page.sendall(
        f"GET /events?number=0&from=0&file={file} HTTP/1.1\r\nHost: 127.0.0.1:{port_of(server)}\r\n\r\n".encode()
    )
    before = time.monotonic()
    with open(writer.path, "a", encoding="ascii") as stream:
        text = "x" * 200_000
        for number in range(2, 100):
            stream.write(json.dumps({"k": "note", "i": number, "text": text}) + "\n")
    writer.iteration(100, {"loss": 1})
    assert time.monotonic() - before < 10
    assert told(server)[1][-1]["i"] in (99, 100)
    page.close()


def test_pages_are_counted(server: RunServer, writer: RunWriter) -> None:
    offset = writer.path.stat().st_size
    pages = [Events(server, offset) for _ in range(MOST_PAGES)]
    for page in pages:
        assert page.answer.readline() == b": begins\n"
    assert Events(server, offset).next()["event"] == "full"
    pages[0].answer.close()
    pages[0].connection.close()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        writer.iteration(1, {"loss": 1})  # the server notices that a page is gone when it has something to say
        page = Events(server, writer.path.stat().st_size)
        if page.answer.readline() == b": begins\n":
            return
        time.sleep(0.2)
    pytest.fail("a page that was closed still counts")


def test_ports_and_paths(server: RunServer, writer: RunWriter, tmp_path: Path) -> None:
    with pytest.raises(UndertowError, match="cannot serve on port"):
        RunServer([writer.folder], port_of(server))
    with pytest.raises(FormatError, match="is not there"):
        RunServer([tmp_path / "none"], 0)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.jsonl").write_text("hello\n")
    with pytest.raises(FormatError, match="no record of a training"):
        RunServer([tmp_path / "other"], 0)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match="holds no run"):
        show_runs([str(tmp_path / "empty")], port=0, html=None, open_browser=False, say=print)
