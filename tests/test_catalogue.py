import gc
import hashlib
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from r2mae.catalogue import PublicFile, PublicSet, data_root, fetch, locate
from r2mae.errors import UserError

CONTENT = bytes(range(256)) * 700
SIZE = len(CONTENT)
DIGEST = hashlib.sha256(CONTENT).hexdigest()

# pooch does not close the response of a download that fails.
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning")


class Server:
    """A web server on this machine; `answers` maps a path to (status, body, declared length)."""

    def __init__(self):
        self.answers = {}
        self.asked = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.asked.append(self.path)
                status, body, length = server.answers.get(self.path, (404, b"", 0))
                self.send_response(status)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def serve(self, path, body, *, status=200, length=None):
        self.answers[path] = (status, body, len(body) if length is None else length)

    def close(self):
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch):
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    server = Server()
    server.serve("/set.bin", CONTENT)
    yield server
    server.close()
    gc.collect()  # such a response is reported here and not in some later test


@pytest.fixture
def root(monkeypatch, tmp_path):
    root = tmp_path / "data"
    monkeypatch.setenv("R2MAE_DATA", str(root))
    return root


def public(server, *, url="/set.bin", sha256=DIGEST, size=SIZE):
    file = PublicFile("some/set.bin", server.url + url, sha256, size)
    return PublicSet("some", "images", "A set", "https://example.org", "CC0", (file,))


def left_behind(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def refused(words, call, *args, **kwargs):
    with pytest.raises(UserError, match=words) as caught:
        call(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_root_is_the_variable_else_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("R2MAE_DATA", str(tmp_path))
    assert data_root() == tmp_path
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("R2MAE_DATA", "~/sets")
    assert data_root() == tmp_path / "sets"
    monkeypatch.setenv("R2MAE_DATA", "")
    assert data_root().name == "r2mae"


def test_fetch_writes_the_file_and_fetches_it_once(server, root):
    some = public(server)
    place = root / "some" / "set.bin"
    assert fetch(some, progress=False) == [place]
    assert place.read_bytes() == CONTENT
    assert place.stat().st_mode & 0o044 or not root.stat().st_mode & 0o044  # as readable as any new file
    assert fetch(some, progress=False) == [place]
    assert server.asked == ["/set.bin"]
    assert locate(some) == {"some/set.bin": place}
    assert left_behind(root) == ["some/set.bin"]


def test_progress_is_shown_on_stderr(server, root, capsys):
    fetch(public(server, size=None))
    shown = capsys.readouterr()
    assert not shown.out
    assert "100%" in shown.err


def test_a_wrong_checksum_leaves_nothing(server, root):
    message = refused("SHA256", fetch, public(server, sha256="0" * 64), progress=False)
    assert DIGEST in message
    assert str(root / "some" / "set.bin") in message
    assert left_behind(root) == []


@pytest.mark.parametrize(("status", "words"), [(404, "404"), (500, "500"), (403, "403")])
def test_an_error_of_the_server_names_url_and_place(server, root, status, words):
    server.serve("/bad", b"<html>sorry</html>", status=status)
    message = refused(words, fetch, public(server, url="/bad", size=None), progress=False)
    assert f"{server.url}/bad" in message
    assert f"by hand at {root / 'some' / 'set.bin'}" in message
    assert left_behind(root) == []


def test_a_connection_that_breaks_off_leaves_nothing(server, root):
    server.serve("/short", CONTENT[:1000], length=len(CONTENT))
    refused("interrupted", fetch, public(server, url="/short", size=None), progress=False)
    assert left_behind(root) == []


def test_no_network(server, root):
    some = public(server)
    server.http.server_close()
    refused("no connection", fetch, some, progress=False)
    assert left_behind(root) == []


def test_a_file_without_an_address_is_placed_by_hand(root):
    some = PublicSet("some", "cells", "A set", "the portal", "CC0", (PublicFile("some/set.bin", "", DIGEST, SIZE),))
    place = root / "some" / "set.bin"
    message = refused(r"is missing: place it there \(the portal\), or point R2MAE_DATA", locate, some)
    assert "data fetch" not in message
    refused(f"{re.escape(str(place))} is missing: place it there", fetch, some, progress=False)
    assert left_behind(root) == []
    place.parent.mkdir(parents=True)
    place.write_bytes(CONTENT[:-1])
    refused("is corrupted .*: place another copy there", locate, some)
    place.write_bytes(CONTENT[:-1] + b"x")
    refused("is corrupted .its checksum is another.: place another copy there", fetch, some, progress=False)
    assert place.read_bytes() == CONTENT[:-1] + b"x"
    place.write_bytes(CONTENT)
    assert locate(some) == {"some/set.bin": place}
    assert fetch(some, progress=False) == [place]


def test_a_folder_that_cannot_be_written(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("R2MAE_DATA", str(tmp_path / "file"))
    refused("R2MAE_DATA", fetch, public(server), progress=False)


@pytest.mark.parametrize("content", [CONTENT[:-1], CONTENT[:-1] + b"x", b""])
def test_a_corrupted_file_is_named_and_replaced(server, root, content):
    some = public(server)
    place = root / "some" / "set.bin"
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    if len(content) != len(CONTENT):
        refused(f"{re.escape(str(place))} is corrupted .* `r2mae data fetch some`", locate, some)
    fetch(some)
    assert place.read_bytes() == CONTENT


def test_a_file_without_a_checksum_is_placed_by_hand(server, root):
    some = public(server, sha256=None, size=None)
    refused("is missing", fetch, some, progress=False)
    place = root / "some" / "set.bin"
    place.parent.mkdir(parents=True)
    place.write_bytes(CONTENT)
    assert fetch(some, progress=False) == [place]
    assert not server.asked


@pytest.mark.parametrize(("error", "words"), [(28, "No space left on device"), (None, "no permission")])
def test_a_disk_that_cannot_be_written(server, root, monkeypatch, error, words):
    import pooch

    def full(self, url, output, pooch):
        Path(output).write_bytes(CONTENT[:1000])
        raise OSError(28, words) if error else PermissionError("no folder")

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", full)
    refused(f"set.bin: cannot be written .{words}.: point R2MAE_DATA at", fetch, public(server), progress=False)
    assert left_behind(root) == []


def test_locate_names_what_is_missing(server, root):
    message = refused("is missing", locate, public(server))
    for part in (str(root / "some" / "set.bin"), "R2MAE_DATA", "`r2mae data fetch some`"):
        assert part in message


def test_a_packaged_set_needs_no_files(root):
    packaged = PublicSet("toy", "images", "Toy", "https://example.org", "CC0", packaged="scikit-learn")
    assert locate(packaged) == {}
    assert fetch(packaged) == []
    assert not Path(root).exists()


def test_importing_the_catalogue_loads_no_library():
    heavy = ("pooch", "torch", "numpy", "rich", "requests")
    code = f"import sys, r2mae.catalogue, r2mae.images.sets; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
