"""What package `forebay` promises."""

from __future__ import annotations

import array
import collections
import ctypes
import gc
import itertools
import mmap
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import forebay

if TYPE_CHECKING:
    from typing_extensions import Buffer

MEMORY_BYTES = 256 << 20


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "database")


@pytest.fixture
def db(path: str) -> Iterator[forebay.Database]:
    with forebay.open(path, memory_bytes=MEMORY_BYTES) as database:
        yield database


def test_values_come_back(db: forebay.Database) -> None:
    db.put(b"key", b"value")
    assert db.get(b"key") == b"value" and db[b"key"] == b"value" and b"key" in db
    assert db.get(b"none") is None and db.get(b"none", 7) == 7 and b"none" not in db
    with pytest.raises(KeyError) as raised:
        db[b"none"]
    assert raised.value.args == (b"none",)
    db[b""] = b"\0of the empty key\0"
    assert db[b""] == b"\0of the empty key\0"
    del db[b"key"]
    db.delete(b"never there")
    assert list(db) == [b""]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_a_key_and_a_value(db: forebay.Database, kind: type) -> None:
    db[kind(b"key")] = kind(b"value")
    assert db[kind(b"key")] == b"value"
    assert list(db.keys(start=kind(b"k"), stop=kind(b"l"))) == [b"key"]


@pytest.mark.parametrize(
    "buffer",
    [
        array.array("i", [1, 2, 3]),
        array.array("d", [1.5]),
        (ctypes.c_ubyte * 3)(1, 2, 3),
        ctypes.create_string_buffer(b"text"),
        memoryview(b"abcdef").cast("B", (2, 3)),
        memoryview(b"abcdef")[::-2],
        mmap.mmap(-1, 10),
    ],
)
def test_a_buffer_of_any_format_and_shape_is_taken_as_its_bytes(db: forebay.Database, buffer: Buffer) -> None:
    content = memoryview(buffer).tobytes()
    db.put(buffer, buffer)
    assert db.get(buffer) == content and list(db.items()) == [(content, content)]


def test_what_is_no_buffer_is_refused(db: forebay.Database) -> None:
    with pytest.raises(TypeError):
        db.put("key", b"value")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        db.get(7)  # type: ignore[call-overload]


def test_get_into_fills_a_buffer(db: forebay.Database) -> None:
    db[b"key"] = b"value"
    buffer = bytearray(b"........")
    assert db.get_into(b"key", buffer) == 5 and buffer == b"value..."
    assert db.get_into(b"none", buffer) is None
    with pytest.raises(ValueError, match="the value has 5 bytes, the buffer 4"):
        db.get_into(b"key", memoryview(buffer)[:4])
    with pytest.raises((ValueError, BufferError)):
        db.get_into(b"key", b"........")
    assert buffer == b"value..."


def test_multi_get(db: forebay.Database) -> None:
    db[b"a"], db[b"b"] = b"1", b""
    assert db.multi_get([b"a", b"x", b"b", b"a"]) == [b"1", None, b"", b"1"]
    assert db.multi_get([]) == []
    assert db.multi_get(key for key in (b"b", bytearray(b"a"))) == [b"", b"1"]


def test_a_batch_is_written_as_a_whole(db: forebay.Database) -> None:
    db[b"old"] = b"0"
    with db.batch() as batch:
        batch.put(b"a", b"1")
        batch.delete(b"old")
        batch.delete_range(b"x", b"y")
        assert len(batch) == 3 and b"a" not in db
    assert len(batch) == 0 and dict(db.items()) == {b"a": b"1"}
    with pytest.raises(ZeroDivisionError):
        with db.batch() as batch:
            batch.put(b"b", b"2")
            1 / 0
    assert b"b" not in db and len(batch) == 0
    batch.put(b"c", b"3")
    batch.clear()
    batch.write()
    assert list(db) == [b"a"]


def test_a_batch_that_fails_is_kept(db: forebay.Database) -> None:
    batch = db.batch()
    batch.put(b"k" * 70_000, b"")
    with pytest.raises(forebay.InvalidError, match="70000 bytes"):
        batch.write()
    assert len(batch) == 1


def test_a_batch_with_conditions(db: forebay.Database) -> None:
    for number in range(2):
        batch = db.batch()
        batch.require_absent(b"key")
        batch.put(b"key", b"%d" % number)
        if number == 0:
            batch.write()
        else:
            with pytest.raises(forebay.ConflictError):
                batch.write()
    assert db[b"key"] == b"0"
    with db.batch() as batch:
        batch.require_present(b"key")
        batch.put(b"other", b"1")
    assert db[b"other"] == b"1"


def test_a_request_takes_effect_once(db: forebay.Database) -> None:
    requests, same = db.requests(b"r/"), db.requests(bytearray(b"r/"))

    def request(number: int, value: bytes, table: forebay.Requests = requests) -> tuple[bytes, bool]:
        batch = db.batch()
        batch.put(b"key", value)
        answer = table.write(b"client", number, batch, result=value)
        assert len(batch) == 0
        return answer.result, answer.is_repeated

    assert request(7, b"first") == (b"first", False)
    assert request(7, b"second") == (b"first", True) and request(7, b"third", same) == (b"first", True)
    assert db[b"key"] == b"first" and list(db.keys(prefix=b"r/")) == [b"r/client"]
    with pytest.raises(forebay.InvalidError, match="request 6 of the client"):
        request(6, b"late")
    assert request(9, b"next", same) == (b"next", False) and db[b"key"] == b"next"
    assert repr(requests.write(b"client", 9, db.batch())) == "Answer(result=b'next', is_repeated=True)"


def test_a_request_that_is_not_written_stays_open(db: forebay.Database) -> None:
    requests = db.requests(b"r/")
    batch = db.batch(sync=True)
    batch.require_present(b"key")
    batch.put(b"other", b"1")
    with pytest.raises(forebay.ConflictError):
        requests.write(b"client", 1, batch)
    assert len(batch) == 1
    db[b"key"] = b""
    answer = requests.write(b"client", 1, batch)
    assert answer.result == b"" and not answer.is_repeated and db[b"other"] == b"1"


def test_requests_that_are_wrong(db: forebay.Database, tmp_path: Path) -> None:
    requests, batch = db.requests(b"r/"), db.batch()
    for client in (b"", bytes(256)):
        with pytest.raises(forebay.InvalidError, match="name no client"):
            requests.write(client, 1, batch)
    for number in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            requests.write(b"client", number, batch)
    with pytest.raises(ValueError, match="negative"):
        db.requests(b"r/", lifetime=timedelta(seconds=-1))
    with forebay.open(str(tmp_path / "other"), memory_bytes=MEMORY_BYTES) as other:
        with pytest.raises(forebay.InvalidError, match="of another database"):
            requests.write(b"client", 1, other.batch())
    db.close()
    with pytest.raises(forebay.ClosedError):
        requests.write(b"client", 1, batch)


def test_a_request_is_forgotten_after_its_lifetime(db: forebay.Database) -> None:
    requests = db.requests(b"r/", lifetime=timedelta())
    assert not requests.write(b"client", 1, db.batch()).is_repeated
    # The request is found again for at most a millisecond.
    assert any(not requests.write(b"client", 1, db.batch()).is_repeated for _ in range(1_000_000))


def test_ranges_in_both_directions(db: forebay.Database) -> None:
    for number in range(1000):
        db[b"%03d" % number] = b"value %d" % number
    assert list(db) == [b"%03d" % number for number in range(1000)]
    assert list(db.items(b"010", b"012")) == [(b"010", b"value 10"), (b"011", b"value 11")]
    assert list(db.keys(b"998")) == [b"998", b"999"]
    assert list(db.keys(stop=b"002")) == [b"000", b"001"]
    assert list(db.keys(prefix=b"99")) == [b"99%d" % number for number in range(10)]
    assert list(db.keys(reverse=True)) == sorted(db, reverse=True)
    assert list(db.values(b"500", b"503", reverse=True)) == [b"value 502", b"value 501", b"value 500"]
    assert list(db.items(b"5", b"5")) == []
    db.delete_range(b"100", b"900")
    assert len(list(db)) == 200


def test_operands_are_merged(db: forebay.Database, tmp_path: Path) -> None:
    with pytest.raises(forebay.InvalidError, match="no merge operator"):
        db.merge(b"key", b"1")
    other = str(tmp_path / "merging")
    with forebay.open(other, memory_bytes=MEMORY_BYTES, merge_operator="append:,") as merging:
        merging.merge(b"key", b"1")
        with merging.batch() as batch:
            batch.merge(b"key", b"2")
        del batch  # As long as the batch exists, the database is not opened again.
        merging.merge(b"key", b"3", sync=True)
        assert merging[b"key"] == b"1,2,3" and dict(merging.items()) == {b"key": b"1,2,3"}
    with forebay.open(other, memory_bytes=MEMORY_BYTES) as merging:
        assert merging[b"key"] == b"1,2,3"


def test_an_iterator_sees_its_moment_and_ends(db: forebay.Database) -> None:
    db[b"a"], db[b"b"] = b"1", b"2"
    items = db.items()
    db[b"c"] = b"3"
    del db[b"a"]
    assert next(items) == (b"a", b"1")
    assert list(items) == [(b"b", b"2")]
    with pytest.raises(StopIteration):
        next(items)
    closed = db.keys()
    closed.close()
    assert list(closed) == []


def test_a_snapshot_stays(db: forebay.Database) -> None:
    db[b"a"] = b"1"
    with db.snapshot() as snapshot:
        db[b"a"], db[b"b"] = b"2", b"3"
        assert snapshot[b"a"] == b"1" and snapshot.get(b"b") is None and b"b" not in snapshot
        assert snapshot.multi_get([b"a", b"b"]) == [b"1", None]
        assert list(snapshot) == [b"a"] and list(snapshot.items()) == [(b"a", b"1")]
        assert list(snapshot.values(reverse=True)) == [b"1"]
        with pytest.raises(KeyError):
            snapshot[b"b"]
    snapshot.release()
    with pytest.raises(forebay.ClosedError):
        snapshot.get(b"a")


def test_the_reverse_order(path: str) -> None:
    with forebay.open(path, reverse=True, memory_bytes=MEMORY_BYTES) as db:
        db[b"a"], db[b"b"] = b"1", b"2"
        assert list(db) == [b"b", b"a"]
    with pytest.raises(forebay.InvalidError, match="key order"):
        forebay.open(path)


def test_a_path_is_found_again_until_it_is_destroyed(path: str) -> None:
    with pytest.raises(forebay.NotFoundError):
        forebay.open(path, create=False)
    with forebay.open(Path(path), memory_bytes=MEMORY_BYTES) as db:
        db[b"key"] = b"value"
        with pytest.raises(forebay.BusyError):
            forebay.open(path)
        with pytest.raises(forebay.BusyError):
            forebay.destroy(path)
    with pytest.raises(forebay.AlreadyExistsError):
        forebay.open(path, error_if_exists=True)
    with forebay.open(path, create=False) as db:
        assert db[b"key"] == b"value"
    forebay.destroy(path)
    with pytest.raises(forebay.NotFoundError):
        forebay.destroy(path)


def test_a_closed_database_says_so(db: forebay.Database) -> None:
    db[b"key"] = b"value"
    keys, batch = db.keys(), db.batch()
    batch.put(b"a", b"1")
    assert not db.closed
    db.close()
    db.close()
    assert db.closed
    with pytest.raises(forebay.ClosedError, match="closed"):
        db.get(b"key")
    with pytest.raises(forebay.ClosedError):
        batch.write()
    del keys, batch


def test_a_closed_database_is_opened_again_though_something_of_it_is_left(db: forebay.Database, path: str) -> None:
    db[b"key"] = b"value"
    snapshot, batch, keys = db.snapshot(), db.batch(), db.keys()
    batch.put(b"late", b"")
    db.close()
    with forebay.open(path, memory_bytes=MEMORY_BYTES) as again:
        again[b"other"] = b""
        with pytest.raises(forebay.ClosedError):
            batch.write()
        with pytest.raises(forebay.ClosedError):
            snapshot.get(b"key")
        del snapshot, batch, keys
        assert list(again) == [b"key", b"other"]
        with pytest.raises(forebay.BusyError):
            forebay.open(path, memory_bytes=MEMORY_BYTES)


def test_a_checkpoint_is_read_while_the_database_is_open(tmp_path: Path) -> None:
    path = tmp_path / "database"
    with forebay.open(path, memory_bytes=MEMORY_BYTES) as db:
        db[b"key"] = b"before"
        db.create_checkpoint("monday")
        db[b"key"] = b"after"
        assert db.checkpoints() == ["monday"]
        with forebay.open(path, checkpoint="monday", memory_bytes=MEMORY_BYTES) as then:
            assert then[b"key"] == b"before"
            with pytest.raises(ValueError):
                then[b"key"] = b"never"
        with pytest.raises(forebay.NotFoundError):
            forebay.open(path, checkpoint="tuesday")
        db.drop_checkpoint("monday")
        assert db.checkpoints() == []
    with forebay.open(path, read_only=True, memory_bytes=MEMORY_BYTES) as now:
        assert now[b"key"] == b"after"
    with pytest.raises(ValueError):
        forebay.open("name", nodes=["tcp://127.0.0.1:1"], read_only=True)


def test_a_signal_ends_what_consumes_an_iterator_in_c(db: forebay.Database) -> None:
    for number in range(1000):
        db[b"%04d" % number] = b""

    class Signalled(Exception):
        pass

    def handle(_signal: int, _frame: object) -> None:
        raise Signalled

    # As a C function, it does not check for signals.
    send = itertools.starmap(ctypes.CDLL(None)["raise"], itertools.repeat((signal.SIGUSR1,)))
    consumed = itertools.count()
    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with pytest.raises(Signalled):
            collections.deque(zip(db.keys(), consumed, send), maxlen=0)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert next(consumed) < 10


def test_errors_are_typed(db: forebay.Database) -> None:
    assert issubclass(forebay.InvalidError, ValueError) and issubclass(forebay.UnavailableError, ConnectionError)
    assert issubclass(forebay.AccessDeniedError, PermissionError) and issubclass(forebay.IoError, OSError)
    with pytest.raises(forebay.InvalidError):
        db.delete_range(b"b", b"a")
    with pytest.raises(forebay.InvalidError):
        forebay.open("name", nodes=["nonsense"])
    with pytest.raises(forebay.UnavailableError):
        forebay.open("name", nodes=["shm:/nowhere/at/all"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"shards": 0},
        {"memory_bytes": 1},
        {"merge_operator": "nobody"},
        {"copies": 2},
        {"copies": 0},
        {"register": "memory:"},
    ],
)
def test_wrong_options_leave_nothing_behind(path: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(forebay.Error):
        forebay.open(path, **wrong)
    assert not Path(path).exists()


def test_a_database_opens_with_the_shards_it_has(path: str) -> None:
    with forebay.open(path, memory_bytes=MEMORY_BYTES, shards=2) as db:
        db[b"key"] = b"value"
    with pytest.raises(forebay.InvalidError, match="created with a number of shards of 2, not 1"):
        forebay.open(path, memory_bytes=MEMORY_BYTES, shards=1)
    with forebay.open(path, memory_bytes=MEMORY_BYTES) as db:
        assert db[b"key"] == b"value" and db.properties()["forebay.num-shards"] == "2"


def test_maintenance(db: forebay.Database) -> None:
    for number in range(2000):
        db[b"%04d" % number] = bytes(1000)
    db.flush()
    db.compact()
    db.compact(b"0100", b"0200")
    assert 500_000 < db.approximate_size(b"0000", b"1000") < 1_500_000
    properties = db.properties()
    assert properties["forebay.num-shards"] == "1"
    assert db.property("forebay.num-flushes") is not None and db.property("nonsense") is None


def test_threads_write_and_read_side_by_side(db: forebay.Database) -> None:
    failures: list[BaseException] = []

    def work(name: int) -> None:
        try:
            for number in range(300):
                key = b"%d-%d" % (name, number)
                db[key] = key
                assert db[key] == key
                if number % 100 == 0:
                    assert sum(1 for _ in db.keys(prefix=b"%d-" % name)) == number + 1
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(db)) == 1200


def test_threads_share_an_iterator(db: forebay.Database) -> None:
    for number in range(5000):
        db[b"%05d" % number] = b""
    keys, found = db.keys(), [[], []]  # type: ignore[var-annotated]
    threads = [threading.Thread(target=lambda into=into: into.extend(keys)) for into in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found[0] + found[1]) == [b"%05d" % number for number in range(5000)]


def test_other_threads_run_while_the_engine_works(db: forebay.Database) -> None:
    """A call that takes long does not keep the interpreter: another thread gets on meanwhile."""
    for number in range(20_000):
        db[b"%06d" % (number * 7919 % 20_000)] = bytes(500)
    done = threading.Event()

    def compact() -> None:
        db.compact()
        done.set()

    thread = threading.Thread(target=compact)
    thread.start()
    steps = 0
    while not done.is_set():
        steps += 1
    thread.join()
    assert steps > 100


@pytest.mark.parametrize(
    "keep",
    [forebay.Database.snapshot, forebay.Database.batch, forebay.Database.keys, lambda db: db.requests(b"r/")],
)
def test_other_threads_run_while_what_is_left_of_a_database_closes_it(
    path: str, keep: Callable[[forebay.Database], object]
) -> None:
    db = forebay.open(path, memory_bytes=MEMORY_BYTES)
    for number in range(20_000):
        db[b"%06d" % number] = bytes(500)
    kept = [keep(db)]
    del db
    begun, closed = threading.Event(), threading.Event()

    def close() -> None:
        begun.set()
        kept.clear()
        closed.set()

    thread = threading.Thread(target=close)
    interval = sys.getswitchinterval()
    # From here on a thread runs until it releases the interpreter.
    sys.setswitchinterval(1000)
    try:
        thread.start()
        begun.wait()
        was_closed = closed.is_set()
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not was_closed


def test_a_database_that_nobody_closes_is_closed(path: str) -> None:
    db = forebay.open(path, memory_bytes=MEMORY_BYTES)
    db[b"key"] = b"value"
    del db
    gc.collect()
    with forebay.open(path, create=False) as again:
        assert again[b"key"] == b"value"


def test_an_iterator_keeps_its_database_open_to_its_end(path: str) -> None:
    expected = [b"%04d" % number for number in range(2000)]
    with forebay.open(path, memory_bytes=MEMORY_BYTES) as db:
        for key in expected:
            db[key] = bytes(100)
        db.compact()
    keys = forebay.open(path, memory_bytes=MEMORY_BYTES).keys()
    gc.collect()
    with pytest.raises(forebay.BusyError):
        forebay.open(path, memory_bytes=MEMORY_BYTES)
    assert list(keys) == expected
    items = forebay.open(path, memory_bytes=MEMORY_BYTES).snapshot().items()
    gc.collect()
    assert next(items) == (b"0000", bytes(100))
    items.close()
    with forebay.open(path, memory_bytes=MEMORY_BYTES) as again:
        assert list(again) == expected


def test_entries_before_a_damaged_place_come_before_the_error(path: str) -> None:
    expected = [b"%05d" % number for number in range(20_000)]
    with forebay.open(path, memory_bytes=MEMORY_BYTES) as db:
        for key in expected:
            db[key] = key * 20
        db.compact()
        db.create_checkpoint("whole")
    segment = max(Path(path).rglob("segment/*/*/*"), key=lambda file: file.stat().st_size)
    damaged = bytearray(segment.read_bytes())
    damaged[len(damaged) * 3 // 5] ^= 1
    segment.write_bytes(damaged)
    with forebay.open(path, checkpoint="whole", memory_bytes=MEMORY_BYTES) as db:
        items, found = db.items(), []  # type: ignore[var-annotated]
        with pytest.raises(forebay.CorruptError):
            found.extend(key for key, _ in items)
        assert found and found == expected[: len(found)]
        assert list(items) == []


def test_what_is_shown(db: forebay.Database) -> None:
    assert forebay.__version__ and set(forebay.__all__) <= set(dir(forebay))
    assert forebay.Database.__doc__ and forebay.open.__doc__
