"""A server in a thread of the tests, and questions to it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from typing import Any

from ganglion.serve import app, server, trial

JSON = {"Content-Type": "application/json"}


class Running:
    """A server in a thread; `ask` asks it."""

    def __init__(self, net: Any, **limits_: Any) -> None:
        self.service = app.Service(net, batch_size=4, **limits_)
        self.service.warm_up()
        page = trial.page(self.service.interface)
        self._bound = server.listen("127.0.0.1", 0)
        self.port = self._bound.getsockname()[1]
        application = app.application(self.service, page)
        self.server = server.server_of(application, self.service)
        self._thread = threading.Thread(target=self.server.run, args=([self._bound],))
        self._thread.start()
        while not self.server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        self._bound.close()

    def ask(
        self, body: Any, headers: dict[str, str] = JSON, method: str = "POST"
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, "/predict", sent, headers)
        answer = connection.getresponse()
        content = json.loads(answer.read())
        connection.close()
        return answer.status, content

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse()
        content = answer.read().decode()
        connection.close()
        return answer.status, content
