"""RemoteMonitor against a server in a thread; what Keras would send is the same."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

import numpy as np
import pytest

from ganglion.callbacks import OrbaxCheckpoint, RemoteMonitor


@pytest.fixture
def server():
    """Yield the address of a server and the list of what it got."""
    received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            received.append((self.path, self.headers["Content-Type"], body))
            received[-1] += (self.headers.get("X-Key"),)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}", received
    http.shutdown()
    http.server_close()


LOGS = {"loss": np.float32(0.5), "accuracy": np.array(0.25), "plain": 1.0}
SENT = {"epoch": 3, "loss": 0.5, "accuracy": 0.25, "plain": 1.0}


def test_a_form_and_json(server):
    root, received = server
    RemoteMonitor(root, headers={"X-Key": "k"}).on_epoch_end(3, LOGS)
    RemoteMonitor(root, path="/json", send_as_json=True).on_epoch_end(3, LOGS)
    form, plain = received
    assert form[0] == "/publish/epoch/end/"
    assert json.loads(parse_qs(form[2])["data"][0]) == SENT
    assert form[3] == "k"
    assert plain[:2] == ("/json", "application/json")
    assert json.loads(plain[2]) == SENT


def test_a_server_that_is_not_there_does_not_stop_training():
    monitor = RemoteMonitor("http://127.0.0.1:1")
    with pytest.warns(UserWarning, match="Could not reach RemoteMonitor root server"):
        monitor.on_epoch_end(0, {"loss": 1.0})


def test_orbax_is_refused_with_the_way_out():
    with pytest.raises(ImportError, match="use ModelCheckpoint"):
        OrbaxCheckpoint("folder")
