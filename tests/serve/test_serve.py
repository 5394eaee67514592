"""A model over HTTP: answers, refusals with a reason, batches, limits, the end."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn")

from serving import JSON, Running

import ganglion as keras
from ganglion.serve import app, limits, metrics, openapi, server, trial
from ganglion.serve.batching import Batcher
from ganglion.serve.interface import Interface
from ganglion.serve.refusal import Refused


def small_net() -> Any:
    """A net of pictures, 4 × 4 in grey, whose classes have names."""
    net = keras.Sequential(
        [
            keras.Input((4, 4, 1)),
            keras.layers.Conv2D(3, 3, padding="same"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Softmax(),
        ],
        name="net",
    )
    net.notes = {"class_names": ["cat", "dog", "fox"]}
    return net


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    started = Running(small_net(), most_bytes=20_000)
    yield started
    started.stop()


def test_rows_are_answered_as_predict_does(running: Running) -> None:
    x = np.random.default_rng(0).uniform(0, 255, (7, 4, 4, 1)).astype("float32")
    wanted = running.service.model.predict(x, verbose=0)
    for rows in (x.tolist(), x.reshape(7, 16).tolist()):  # more than a batch holds
        status, said = running.ask({"rows": rows})
        assert status == 200
        np.testing.assert_allclose(said["probabilities"], wanted, atol=1e-6)
        names = [("cat", "dog", "fox")[best] for best in wanted.argmax(axis=1)]
        assert said["classes"] == names


def test_maps_come_with_the_answer(running: Running) -> None:
    x = np.random.default_rng(1).uniform(0, 255, (1, 4, 4, 1)).astype("float32")
    made = keras.explain.class_activation_map(
        running.service.model, x, size="features", normalize=True
    )
    status, said = running.ask({"rows": x.tolist(), "maps": True})
    assert status == 200
    np.testing.assert_allclose(said["maps"], made.maps, atol=1e-5)


def test_a_picture_is_answered(running: Running) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.arange(16, dtype="uint8").reshape(4, 4) * 16
    file = io.BytesIO()
    image.fromarray(pixels).save(file, "png")
    status, said = running.ask(file.getvalue(), {"Content-Type": "image/png"})
    assert status == 200
    assert said == running.ask({"rows": [pixels.reshape(16).tolist()]})[1]


ROW = [0.0] * 16
REFUSED = [
    (b"{", JSON, 400, "not JSON"),
    (b"[" * 100_00, JSON, 400, "not JSON"),
    (b"\xff", JSON, 400, "not JSON"),
    ([], JSON, 422, "must be an object"),
    ({"rows": [ROW], "more": 1}, JSON, 422, "'more'"),
    ({}, JSON, 422, "at least one row"),
    ({"rows": []}, JSON, 422, "at least one row"),
    ({"rows": [ROW, ROW[1:]]}, JSON, 422, "rows[1] has 15 numbers; 'input"),
    ({"rows": [ROW, [*ROW[1:], "x"]]}, JSON, 422, "rows[1] holds what is not a number"),
    (
        {"rows": [ROW, [*ROW[1:], None]]},
        JSON,
        422,
        "rows[1] holds what is not a number",
    ),
    ({"rows": [[*ROW[1:], [1]]]}, JSON, 422, "lists of different lengths"),
    ({"rows": [[*ROW[1:], float("nan")]]}, JSON, 422, "finite"),
    ({"rows": [[*ROW[1:], 1e300]]}, JSON, 422, "too large for float32"),
    ({"rows": [ROW], "maps": 1}, JSON, 422, "true or false"),
    ({"rows": [ROW]}, {"Content-Type": "text/plain"}, 415, "'text/plain'"),
    (b"GIF", {"Content-Type": "image/png"}, 422, "holds text"),
    (b" " * 30_000, JSON, 413, "0.02 MB"),
    ({"rows": [ROW]}, {**JSON, "Expect": "100-continue"}, 200, ""),
]


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_bad_requests_are_refused_with_a_reason(running: Running, case: int) -> None:
    body, headers, status, reason = REFUSED[case]
    got, said = running.ask(body, headers)
    assert got == status
    assert reason in said.get("error", ""), said


def test_a_body_of_unknown_size_is_cut_off_where_it_becomes_too_large(
    running: Running,
) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=30)
    parts = (b" " * 1000 for _ in range(50))
    connection.request("POST", "/predict", parts, JSON, encode_chunked=True)
    assert connection.getresponse().status == 413
    connection.close()


def test_other_paths_and_methods(running: Running) -> None:
    status, said = running.get("/nothing")
    assert (status, "there are /, /predict" in said) == (404, True)
    status, said = running.get("/predict")
    assert (status, "takes POST, not GET" in said) == (405, True)
    assert json.loads(running.get("/health")[1]) == {"status": "ok", "model": "net"}
    assert json.loads(running.get("/model")[1])["classes"] == ["cat", "dog", "fox"]
    status, page = running.get("/")
    assert (status, "<h1>Try net</h1>" in page) == (200, True)


def test_metrics_count_what_happened(running: Running) -> None:
    def value(name: str) -> float:
        text = running.get("/metrics")[1]
        lines = [line.rpartition(" ") for line in text.splitlines() if line[0] != "#"]
        return {name: float(value) for name, _, value in lines}.get(name, 0.0)

    good = 'ganglion_requests_total{path="/predict",status="200"}'
    bad = 'ganglion_requests_total{path="/predict",status="400"}'
    before = value(good), value(bad), value("ganglion_batch_rows_sum")
    running.ask({"rows": [ROW, ROW]})
    running.ask(b"{")
    after = value(good), value(bad), value("ganglion_batch_rows_sum")
    assert [b - a for a, b in zip(before, after, strict=True)] == [1, 1, 2]
    assert value("process_resident_memory_bytes") > 1e6


def test_slow_clients_block_nobody(running: Running) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n"
    slow = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(8)]
    for number, client in enumerate(slow):
        client.sendall(head + b"Content-Type: application/json\r\n\r\n{" * (number % 2))
    assert running.ask({"rows": [ROW]})[0] == 200
    for client in slow:
        client.close()


def test_the_head_of_a_request_must_come_in_time(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.05)
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client:
        client.sendall(b"POST /pre")
        assert client.recv(100) == b""


def test_a_body_must_come_in_time(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BODY_SECONDS", 0.05)
    monkeypatch.setattr(app, "DRAIN_SECONDS", 0.05)
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client:
        client.sendall(
            b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
            b"Content-Type: application/json\r\n\r\n{"
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_the_rest_of_a_request_that_has_its_answer_must_come_in_time(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEADER_SECONDS", 0.05)
    head = b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
    with socket.create_connection(("127.0.0.1", running.port), timeout=30) as client:
        client.sendall(head)
        received = client.recv(1000)
        client.sendall(b"x")  # which must not give it more time than it has
        while part := client.recv(1000):
            received += part
        assert received.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    ("name", "most"), [("ANSWER_SECONDS", 0.05), ("UNREAD_BYTES", 100_000)]
)
def test_an_answer_must_be_taken_in_time(
    name: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, name, most)
    net = keras.Sequential([keras.Input((1,)), keras.layers.Dense(100_000)])
    started = Running(net)
    body = json.dumps({"rows": [[0.5]] * 20}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    kind = "Content-Type: application/json\r\n\r\n"
    with socket.create_connection(("127.0.0.1", started.port), timeout=30) as client:
        client.sendall((head + kind).encode() + body)
        while not started.service.metrics.requests:
            time.sleep(0.01)
        connections = started.server.server_state.connections
        deadline = time.monotonic() + 30
        while connections and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not connections
    assert started.get("/health")[0] == 200
    started.stop()


def test_an_answer_far_larger_than_its_request_is_refused() -> None:
    net = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1000)])
    started = Running(net, most_bytes=20_000)
    assert started.ask({"rows": [[1]] * 10})[0] == 200
    status, said = started.ask({"rows": [[1]] * 11})
    started.stop()
    assert status == 413
    assert "more than 10,000 numbers; send fewer rows" in said["error"]


def test_requests_that_arrive_together_are_one_batch() -> None:
    begun, free = threading.Event(), threading.Event()
    batches: list[list[int]] = []

    def compute(arrays: list[np.ndarray]) -> list[np.ndarray]:
        batches.append(arrays[0][:, 0].tolist())
        begun.set()
        assert free.wait(30)
        if (arrays[0] < 0).any():
            raise ValueError("negative")
        return [arrays[0] * 2]

    async def ask_all() -> list[Any]:
        batcher = Batcher({"double": compute}, batch_size=8, most_numbers=100)
        batcher.start()
        first = asyncio.create_task(batcher("double", [np.zeros((1, 1))]))
        await asyncio.to_thread(begun.wait, 30)
        rest = [
            asyncio.create_task(batcher("double", [np.full((2, 1), number)]))
            for number in (1, 2, -3, 4, 5)
        ]
        await asyncio.sleep(0)
        free.set()
        answers = await asyncio.gather(first, *rest, return_exceptions=True)
        await batcher.stop()
        return answers

    answers = asyncio.run(ask_all())
    # Four fit into a batch; the one that fails does so alone.
    assert batches[:2] == [[0], [1, 1, 2, 2, -3, -3, 4, 4]]
    assert isinstance(answers[3], ValueError)
    doubled = [float(answer[0][0, 0]) for answer in answers if isinstance(answer, list)]
    assert doubled == [0, 2, 4, 8, 10]


def test_more_than_can_be_kept_is_refused_to_be_asked_again() -> None:
    async def fill() -> None:
        batcher = Batcher({"same": lambda arrays: arrays}, 1, most_numbers=100)
        tasks = [
            asyncio.create_task(batcher("same", [np.zeros((40, 1))])) for _ in range(3)
        ]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="40 rows wait") as refused:
            await tasks[1]
        assert (refused.value.status, refused.value.retry_after) == (503, 1)
        batcher.start()
        assert len((await tasks[0])[0]) == 40
        await batcher.stop()
        with pytest.raises(Refused):
            await tasks[2]

    asyncio.run(fill())


def test_too_many_requests_are_refused_until_later() -> None:
    started = Running(small_net(), rate=0.001)
    statuses = [started.ask({"rows": [ROW]})[0] for _ in range(3)]
    started.stop()
    assert statuses == [200, 429, 429]


def test_a_request_under_way_is_answered_before_the_end() -> None:
    started = Running(small_net())
    body = json.dumps({"rows": [ROW]}).encode()
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    with socket.create_connection(("127.0.0.1", started.port), timeout=30) as client:
        kind = "Content-Type: application/json\r\n\r\n"
        client.sendall(head.encode() + kind.encode() + body[:5])
        while not started.service.metrics.in_progress:
            time.sleep(0.01)
        ending = threading.Thread(target=started.stop)
        ending.start()
        while not started.service.is_stopping:
            time.sleep(0.01)
        client.sendall(body[5:])
        answer = client.recv(1 << 16)
    ending.join()
    assert answer.startswith(b"HTTP/1.1 200 ")


# ---- models of other shapes ----------------------------------------------------------


def test_models_of_several_inputs_and_outputs_name_them() -> None:
    a, b = keras.Input((2,), name="ä"), keras.Input((), dtype="int32", name="b")
    total = keras.layers.Dense(1, name="total")(a)
    table = keras.layers.Embedding(5, 3, name="table")(b)
    interface = Interface.of(keras.Model([a, b], [total, table]))
    assert (interface.head, interface.form, interface.classes) == ("values", None, ())
    arrays = interface.rows([{"ä": [1, 2], "b": 4}, {"ä": [3, 4], "b": 0}])
    assert [(array.shape, str(array.dtype)) for array in arrays] == [
        ((2, 2), "float32"),
        ((2,), "int32"),
    ]
    outputs = [np.ones((2, 1)), np.zeros((2, 3))]
    assert interface.answer(outputs)["outputs"][1] == {"total": [1], "table": [0] * 3}
    for row, reason in (
        ([1, 2], r'rows\[0\] must be {"b": …, "ä": …}'),
        ({"ä": [1, 2]}, "must be"),
        ({"ä": [1, 2], "b": 1.5}, "integers"),
        ({"ä": [1, 2], "b": 1 << 40}, "int32"),
    ):
        with pytest.raises(Refused, match=reason):
            interface.rows([row])
    assert trial.ways_in(interface) == [trial.JSON]
    assert "{&quot;ä&quot;: [0, 0]" in trial.page(interface)


def test_one_unit_is_no_and_yes_and_logits_become_probabilities() -> None:
    yes = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    yes.compile(loss=keras.losses.BinaryCrossentropy(from_logits=True))
    interface = Interface.of(yes)
    assert (interface.head, interface.classes) == ("logits", ("0", "1"))
    said = interface.answer([np.array([[0.0]], "float32")])
    assert said == {"classes": ["0"], "probabilities": [[0.5, 0.5]]}
    plain = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    assert Interface.of(plain).head == "values"
    with pytest.raises(Refused, match="not finite"):
        interface.answer([np.array([[np.nan]])])


def test_texts_and_rows_of_any_length() -> None:
    words = keras.layers.TextVectorization(vocabulary=["good", "bad"])
    text = keras.Input((1,), dtype="string")
    x = keras.layers.Embedding(4, 2)(words(text))
    x = keras.layers.GlobalAveragePooling1D()(x)
    net = keras.Model(text, keras.layers.Dense(2, activation="softmax")(x))
    service = app.Service(net)
    service.warm_up()  # of what is not known yet: nothing
    assert trial.ways_in(service.interface) == [trial.TEXT]
    (outputs,) = service._predict(service.interface.rows(["good", "bad good"]))
    assert outputs.shape == (2, 2)
    with pytest.raises(Refused, match=r"rows\[1\] is not text: 3"):
        service.interface.rows(["good", 3])
    steps = keras.Sequential([keras.Input((None, 3)), keras.layers.GRU(2)])
    interface = Interface.of(steps)
    assert interface.rows([[[1, 2, 3]] * 5])[0].shape == (1, 5, 3)
    with pytest.raises(Refused, match="different"):
        interface.rows([[[1, 2, 3]] * 5, [[1, 2, 3]] * 4])


def test_texts_among_numbers_take_no_memory() -> None:
    interface = Interface.of(small_net())
    rows = [["a" * 4_000_000], *[[""]] * 800_000]  # an array of equal texts: 12 TB
    with pytest.raises(Refused, match=r"rows\[0\] holds what is not a number"):
        interface.rows(rows)


def test_a_model_without_shapes_is_refused() -> None:
    class Own(keras.Model):
        pass

    with pytest.raises(ValueError, match="does not say what it takes"):
        Interface.of(Own(name="own"))


def test_the_description_names_the_shapes() -> None:
    described = openapi.description(Interface.of(small_net()))
    schemas = described["components"]["schemas"]
    nested, flat = schemas["Request"]["properties"]["rows"]["items"]["anyOf"]
    assert flat == {"type": "array", "items": {"type": "number"}, "minItems": 16,
                    "maxItems": 16}  # fmt: skip
    assert nested["maxItems"] == 4
    assert schemas["Answer"]["properties"]["classes"]["items"]["enum"] == [
        "cat",
        "dog",
        "fox",
    ]
    content = described["paths"]["/predict"]["post"]["requestBody"]["content"]
    assert {"application/json", "image/png"} <= content.keys()


def test_answers_are_sent_at_once() -> None:
    with server.listen("127.0.0.1", 0) as bound:
        # What asyncio asks before it turns Nagle's waiting off.
        assert bound.proto == socket.IPPROTO_TCP
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    with taken, pytest.raises(OSError, match=r"--port, or 0 for a free one"):
        server.listen("127.0.0.1", port)


def test_memory_is_reported_as_unknown_where_the_system_does_not_tell(monkeypatch):
    def missing(*args, **kwargs):
        raise FileNotFoundError

    monkeypatch.setattr(metrics, "open", missing, raising=False)
    monkeypatch.setattr(metrics.sys, "platform", "win32")
    monkeypatch.setitem(sys.modules, "resource", None)  # Windows has none
    assert "process_resident_memory_bytes 0" in metrics.Metrics().text(rows_waiting=0)
