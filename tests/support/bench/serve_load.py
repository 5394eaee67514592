"""A server under load: many clients, some slow, some broken, some far too large.

    python tests/support/bench/serve_load.py MODEL --requests 4000 --clients 8

Starts `ganglion serve`, asks it from several clients at once, kills it in the
middle (SIGTERM: what is under way must be answered; then SIGKILL: it must come
back), and prints what came of it: answers by status, lost ones, p50 and p99, memory.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

HOST = "127.0.0.1"
LARGEST = 30_000_000  # bytes of a body that is far too large


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        return bound.getsockname()[1]


def start(model: str, port: int, *options: str) -> subprocess.Popen:
    """Start a server and wait until it answers."""
    command = [sys.executable, "-m", "ganglion", "serve", model, "--port", str(port)]
    server = subprocess.Popen([*command, *options], stderr=subprocess.DEVNULL)
    for _ in range(600):
        try:
            if get(port, "/health")[0] == 200:
                return server
        except OSError:
            assert server.poll() is None, "the server ended"
        time.sleep(0.1)
    raise RuntimeError("the server does not answer")


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def resident(server: subprocess.Popen) -> float:
    """Return the megabytes that a process holds."""
    with open(f"/proc/{server.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@dataclass
class Counts:
    """The results of all clients."""

    statuses: Counter = field(default_factory=Counter)
    milliseconds: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def expect(self, kind: str, status: int, body: bytes, wanted: set[int]) -> None:
        self.statuses[kind, status] += 1
        if status not in wanted:
            self.wrong.append(f"{kind}: {status} {body[:100]!r}")
        elif status != 200 and "error" not in json.loads(body):
            self.wrong.append(f"{kind}: no reason in {body[:100]!r}")


def post(
    connection: http.client.HTTPConnection, body: bytes, kind: str = "application/json"
) -> tuple[int, bytes]:
    connection.request("POST", "/predict", body, {"Content-Type": kind})
    answer = connection.getresponse()
    return answer.status, answer.read()


class Client:
    """Asks many times over one connection; now and then for what is refused."""

    def __init__(self, port: int, size: int, requests: int, seed: int) -> None:
        self.port, self.size, self.requests = port, size, requests
        self.random, self.counts = random.Random(seed), Counts()

    def run(self) -> Counts:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=60)
        kinds = ["rows"] * 40 + ["broken", "short", "large", "cut", "picture"]
        for _ in range(self.requests):
            kind = self.random.choice(kinds)
            try:
                getattr(self, kind)(connection)
            except (OSError, http.client.HTTPException) as error:
                self.counts.lost.append(f"{kind}: {error!r}")
                connection.close()
        connection.close()
        return self.counts

    def row(self, size: int) -> list[float]:
        return [round(self.random.random() * 255, 1) for _ in range(size)]

    def rows(self, connection: http.client.HTTPConnection) -> None:
        count = self.random.choice((1, 1, 1, 4, 20))
        body = json.dumps({"rows": [self.row(self.size) for _ in range(count)]})
        began = time.perf_counter()
        status, answer = post(connection, body.encode())
        self.counts.milliseconds.append(1e3 * (time.perf_counter() - began))
        self.counts.expect("rows", status, answer, {200})
        if status == 200:
            said = json.loads(answer)
            if len(said.get("probabilities") or said["outputs"]) != count:
                self.counts.wrong.append("rows: not as many answers as rows")

    def broken(self, connection: http.client.HTTPConnection) -> None:
        self.counts.expect("broken", *post(connection, b'{"rows": [[1,'), {400})

    def short(self, connection: http.client.HTTPConnection) -> None:
        body = json.dumps({"rows": [self.row(self.size - 1)]}).encode()
        self.counts.expect("short", *post(connection, body), {422})

    def picture(self, connection: http.client.HTTPConnection) -> None:
        answer = post(connection, b"\x89PNG no picture", "image/png")
        self.counts.expect("picture", *answer, {415, 422})

    def large(self, connection: http.client.HTTPConnection) -> None:
        self.counts.expect("large", *post(connection, b" " * LARGEST), {413})

    def cut(self, connection: http.client.HTTPConnection) -> None:
        """Promise more than is sent, and go."""
        with socket.create_connection((HOST, self.port), timeout=30) as raw:
            head = "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n"
            raw.sendall(f"{head}Content-Type: application/json\r\n\r\n{{".encode())
        self.counts.statuses["cut", 0] += 1


def slow_clients(
    port: int, count: int, stop: threading.Event
) -> list[threading.Thread]:
    """Start clients that send a byte now and then, and never read."""

    def crawl(number: int) -> None:
        head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n"
        if number % 2:
            head += b"Content-Type: application/json\r\n\r\n"
        while not stop.is_set():
            try:
                with socket.create_connection((HOST, port), timeout=30) as raw:
                    raw.sendall(head)
                    while not stop.wait(0.2):
                        raw.sendall(b"x")
            except OSError:
                stop.wait(0.2)

    threads = [threading.Thread(target=crawl, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    return threads


def terminated_in_the_middle(server: subprocess.Popen, port: int, size: int) -> bool:
    """Return whether a request that is under way at SIGTERM gets its answer."""
    body = json.dumps({"rows": [[0] * size]}).encode()
    with socket.create_connection((HOST, port), timeout=30) as raw:
        head = (
            "POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        raw.sendall(head.encode() + body[:10])
        time.sleep(0.3)
        server.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        raw.sendall(body[10:])
        answer = b""
        while part := raw.recv(65536):
            answer += part
    server.wait(30)
    return answer.startswith(b"HTTP/1.1 200")


def round_of(port: int, size: int, requests: int, clients: int, seed: int) -> Counts:
    """Ask from all clients at once; return what they saw together."""
    asking = [
        Client(port, size, requests // clients, 100 * seed + number)
        for number in range(clients)
    ]
    total = Counts()
    # In processes of their own: clients that wait for each other measure themselves.
    with ProcessPoolExecutor(clients) as pool:
        for counts in pool.map(Client.run, asking):
            total.statuses += counts.statuses
            total.milliseconds += counts.milliseconds
            total.lost += counts.lost
            total.wrong += counts.wrong
    return total


def report(counts: Counts, seconds: float, before: float, after: float) -> None:
    times = sorted(counts.milliseconds)
    for (kind, status), number in sorted(counts.statuses.items()):
        print(f"  {kind:<8} {status or 'gone'}  {number}")
    print(
        f"  {len(times)} answered in {seconds:.1f} s, {len(times) / seconds:.0f} a "
        f"second; p50 {times[len(times) // 2]:.1f} ms, "
        f"p99 {times[int(len(times) * 0.99)]:.1f} ms; "
        f"lost {len(counts.lost)}, wrong {len(counts.wrong)}; "
        f"memory {before:.0f} -> {after:.0f} MB"
    )
    for text in (counts.lost + counts.wrong)[:5]:
        print("  !", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--slow", type=int, default=6)
    chosen = parser.parse_args()
    port = free_port()
    failed = False
    for number, life in enumerate(("first", "after SIGTERM", "after SIGKILL")):
        server = start(chosen.model, port)
        shape = json.loads(get(port, "/model")[1])["inputs"][0]["shape"]
        size = 1
        for side in shape:
            size *= side
        round_of(port, size, 200, chosen.clients, 99)  # buffers get their size
        stop = threading.Event()
        slow = slow_clients(port, chosen.slow, stop)
        before, began = resident(server), time.perf_counter()
        counts = round_of(port, size, chosen.requests // 3, chosen.clients, number)
        seconds, after = time.perf_counter() - began, resident(server)
        stop.set()
        for thread in slow:
            thread.join()
        print(f"{life}:")
        report(counts, seconds, before, after)
        failed |= bool(counts.lost or counts.wrong)
        if life == "first":
            is_answered = terminated_in_the_middle(server, port, size)
            print(f"  SIGTERM: ended with {server.returncode}, answered {is_answered}")
            failed |= not is_answered or server.returncode != 0
        else:
            server.kill()
            server.wait()
    sys.exit(failed)


if __name__ == "__main__":
    main()
