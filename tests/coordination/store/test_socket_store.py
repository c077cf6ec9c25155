"""The store over sockets: its messages, the order of what it sends, and sides that do not read, ping or make sense."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from barnabas.coordination.store.contract import (
    BadVersion,
    Check,
    Create,
    CreateMode,
    Delete,
    EventType,
    MultiFailed,
    NoNode,
    Operation,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    StoreError,
    StoreInUse,
    StoreUnavailable,
    WatchEvent,
)
from barnabas.coordination.store.socket_messages import (
    FRAME_BYTES_MAX,
    BadMessage,
    FrameSplitter,
    Kind,
    Reader,
    Writer,
    event_frame,
    read_error,
    read_event,
    read_operations,
    read_results,
    read_state,
    state_frame,
    write_error,
    write_operations,
    write_results,
)
from barnabas.coordination.store.socket_store import SocketSession, SocketStore
from tests.coordination.engines import Recorder, SocketEngine, run, socket_engine

STAT = Stat(
    czxid=1 << 40,
    mzxid=2,
    pzxid=3,
    ctime_ms=4,
    mtime_ms=5,
    version=-1,
    cversion=7,
    aversion=0,
    ephemeral_owner=9,
    data_length=10,
    num_children=11,
)
OPERATIONS: list[Operation] = [
    Create("/größe", b"\x00\xff", CreateMode.EPHEMERAL_SEQUENTIAL),
    SetData("/a", b"", 3),
    Delete("/b"),
    Check("/\ud800", 0),
]


def body_of(frame: bytes) -> bytes:
    [body] = FrameSplitter().feed(frame)
    return body


def with_engine(
    directory: Path, scenario: Callable[[SocketEngine], Awaitable[None]], *, session_timeout_ms: int = 60_000
) -> None:
    async def main() -> None:
        async with socket_engine(directory, session_timeout_ms=session_timeout_ms) as engine:
            await scenario(engine)

    run(main())


def test_messages_come_back_as_they_were() -> None:
    writer = Writer(Kind.MULTI, 0xFFFFFFFF)
    write_operations(writer, OPERATIONS)
    reader = Reader(body_of(writer.frame()))
    assert (reader.kind, reader.request_id) == (Kind.MULTI, 0xFFFFFFFF)
    assert read_operations(reader) == OPERATIONS
    reader.end()

    writer = Writer(Kind.RESULT, 1)
    write_results(writer, [None, "/path", STAT])
    reader = Reader(body_of(writer.frame()))
    assert read_results(reader) == [None, "/path", STAT]
    reader.end()

    event = WatchEvent(type=EventType.NODE_CHILDREN_CHANGED, path="/a")
    assert read_event(Reader(body_of(event_frame(event)))) == event
    for state in SessionState:
        assert read_state(Reader(body_of(state_frame(state)))) is state


@pytest.mark.parametrize("error", [NoNode("/a"), StoreInUse("held"), StoreError("other"), BadMessage("bad")])
def test_errors_keep_their_kind(error: StoreError) -> None:
    writer = Writer(Kind.REFUSED)
    write_error(writer, error)
    found = read_error(Reader(body_of(writer.frame())))
    # A kind of error that the other side does not know is the nearest one that it knows.
    assert type(found) is (StoreUnavailable if isinstance(error, BadMessage) else type(error))
    assert str(found) == str(error)

    writer = Writer(Kind.REFUSED)
    write_error(writer, MultiFailed(7, BadVersion("/a")))
    multi = read_error(Reader(body_of(writer.frame())))
    assert isinstance(multi, MultiFailed)
    assert (multi.index, type(multi.error), str(multi.error)) == (7, BadVersion, "/a")


def test_frames_are_found_however_their_bytes_arrive() -> None:
    frames = b"".join(Writer(Kind.PING, index).text("x" * index).frame() for index in range(5))
    splitter = FrameSplitter()
    found = [
        Reader(body).request_id
        for index in range(len(frames))
        for body in splitter.feed(frames[index : index + 1])
    ]
    assert found == list(range(5))
    assert [Reader(body).request_id for body in FrameSplitter().feed(frames)] == list(range(5))


def test_bytes_that_are_no_message_are_refused() -> None:
    whole = Writer(Kind.MULTI, 1)
    write_operations(whole, OPERATIONS)
    body = body_of(whole.frame())
    for end in range(len(body)):
        with pytest.raises(BadMessage):
            read_operations(Reader(body[:end]))
    with pytest.raises(BadMessage):
        Reader(b"\xff" + body[1:])
    with pytest.raises(BadMessage):
        list(FrameSplitter().feed((FRAME_BYTES_MAX + 1).to_bytes(4, "big")))
    with pytest.raises(BadMessage):
        list(FrameSplitter().feed(b"\0\0\0\0"))
    # An announced number of operations takes no memory before they are there.
    with pytest.raises(BadMessage):
        read_operations(Reader(body_of(Writer(Kind.MULTI, 1).count(0xFFFFFFFF).frame())))
    reader = Reader(body_of(Writer(Kind.PING, 1).byte(0).frame()))
    with pytest.raises(BadMessage):
        reader.end()


def test_a_message_that_is_too_large_is_refused_by_its_sender() -> None:
    writer = Writer(Kind.MULTI, 1)
    for _ in range(65):
        writer.data(bytes(1 << 20))
    with pytest.raises(BadMessage):
        writer.frame()


def test_writes_of_a_session_are_seen_by_its_next_read(tmp_path: Path) -> None:
    async def scenario(engine: SocketEngine) -> None:
        store, path = await engine.connect(), f"{engine.root}/a"
        # Nothing waits for an answer before the next request is sent.
        writes: list[asyncio.Future[object]] = [asyncio.ensure_future(store.create(path))]
        writes += [asyncio.ensure_future(store.set(path, b"%d" % index)) for index in range(100)]
        await asyncio.sleep(0)
        data, stat = await store.get(path)
        assert (data, stat.version) == (b"99", 100)
        assert all(each.done() for each in writes)

    with_engine(tmp_path, scenario)


def test_an_event_comes_before_the_answers_that_follow_it(tmp_path: Path) -> None:
    async def scenario(engine: SocketEngine) -> None:
        watching, writing, path = await engine.connect(), await engine.connect(), f"{engine.root}/a"
        for index in range(50):
            recorder = Recorder()
            await watching.exists(path, recorder)
            writing_now = asyncio.ensure_future(
                writing.create(path) if index % 2 == 0 else writing.delete(path)
            )
            while (await watching.exists(path) is None) == (index % 2 == 0):
                # It has not seen the change, so there was nothing to report.
                continue
            assert recorder.is_called
            await writing_now

    with_engine(tmp_path, scenario)


def test_large_nodes_come_in_several_answers(tmp_path: Path) -> None:
    async def scenario(engine: SocketEngine) -> None:
        store = await engine.connect()
        paths = [f"{engine.root}/{index:04}" for index in range(2_100)]
        await store.multi(
            [Create(path, b"x" * (900_000 if index < 10 else 1)) for index, path in enumerate(paths)]
        )
        found = await store.get_all(paths)
        assert [len(node[0]) if node else None for node in found] == [900_000] * 10 + [1] * 2_090

    with_engine(tmp_path, scenario)


def test_a_broker_that_sends_nonsense_is_cut_off(tmp_path: Path) -> None:
    async def scenario(engine: SocketEngine) -> None:
        for nonsense in (
            b"\xff" * 100,
            Writer(Kind.GET, 1).text("/").byte(0).frame(),
            Writer(Kind.OPEN, 1).long(0).long(3).frame(),
            Writer(Kind.RESULT, 1).frame(),
        ):
            ours = knock(engine)
            await loop_of().sock_sendall(ours, nonsense)
            assert await loop_of().sock_recv(ours, 100) == b""
            ours.close()
        assert await (await engine.connect()).exists(engine.root) is not None

    with_engine(tmp_path, scenario)


def test_a_broker_that_is_silent_loses_its_session(tmp_path: Path) -> None:
    async def scenario(engine: SocketEngine) -> None:
        other, path, recorder = await engine.connect(), f"{engine.root}/a", Recorder()
        ours = knock(engine)
        request = Writer(Kind.MULTI, 2)
        write_operations(request, [Create(path, b"", CreateMode.EPHEMERAL)])
        await loop_of().sock_sendall(ours, Writer(Kind.OPEN, 1).long(200).long(2).frame() + request.frame())
        while await other.exists(path, recorder) is None:
            await recorder.next()
        assert await recorder.next() == ("NODE_DELETED", path)
        while await loop_of().sock_recv(ours, 100):
            pass
        ours.close()

    with_engine(tmp_path, scenario)


@pytest.mark.slow
def test_a_broker_that_does_not_read_is_not_read_from_and_is_cut_off(tmp_path: Path) -> None:
    async def scenario(engine: SocketEngine) -> None:
        other, path = await engine.connect(), f"{engine.root}/large"
        await other.create(path, bytes(1 << 19))
        ours = knock(engine)
        await loop_of().sock_sendall(ours, Writer(Kind.OPEN, 1).long(500).long(2).frame())
        sent = 0

        async def flood() -> None:
            nonlocal sent
            for index in range(1_000_000):
                await loop_of().sock_sendall(ours, Writer(Kind.GET, index + 2).text(path).byte(0).frame())
                sent += 1

        with pytest.raises(OSError):
            await flood()
        # The store held a bounded number of them, besides what the system keeps for a socket.
        assert sent < 100_000
        ours.close()
        assert await other.exists(path) is not None

    with_engine(tmp_path, scenario)


def test_a_store_that_does_not_answer_is_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        inside, outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        with inside, outside:
            connecting = asyncio.ensure_future(SocketStore(outside, session_timeout_ms=100).connect())
            await asyncio.sleep(0)
            _, [descriptor], _, _ = socket.recv_fds(inside, 64, 1)
            with socket.socket(fileno=descriptor) as theirs:
                theirs.setblocking(False)
                [opened] = FrameSplitter().feed(await loop_of().sock_recv(theirs, 1_000))
                answer = Writer(Kind.RESULT, Reader(opened).request_id).long(77).byte(1).frame()
                await loop_of().sock_sendall(theirs, answer)
                session = await connecting
                assert session.session_id == 77
                over: asyncio.Queue[SessionState] = asyncio.Queue()
                session.add_session_listener(over.put_nowait)
                waiting = asyncio.ensure_future(session.get("/"))
                # No ping is answered.
                assert await over.get() is SessionState.EXPIRED
                with pytest.raises(SessionExpired):
                    await waiting

    run(main())


def test_a_door_without_anyone_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.coordination.store.socket_store.CONNECTION_TIMEOUT_S", 0.05)

    async def main() -> None:
        inside, outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        outside.setblocking(False)
        store = SocketStore(outside, session_timeout_ms=1_000)
        with inside, outside:
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="did not answer"):
                    await store.connect()
            inside.close()
            with pytest.raises(StoreUnavailable, match="takes no connection"):
                await store.connect()

    run(main())


def test_the_store_ends_while_requests_wait(tmp_path: Path) -> None:
    async def scenario(engine: SocketEngine) -> None:
        session = await engine.connect()
        assert isinstance(session, SocketSession)
        states: list[SessionState] = []
        session.add_session_listener(states.append)
        waiting = [asyncio.ensure_future(session.create(f"{engine.root}/{index}")) for index in range(10)]
        await asyncio.sleep(0)
        await engine.server.close()
        for each in waiting:
            with pytest.raises(SessionExpired):
                await each
        assert states == [SessionState.EXPIRED]
        await session.close()

    with_engine(tmp_path, scenario)


def knock(engine: SocketEngine) -> socket.socket:
    """A connection to the store, of a program that does as it likes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        socket.send_fds(engine.door, [b"session"], [theirs.fileno()])
    ours.setblocking(False)
    return ours


def loop_of() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()
