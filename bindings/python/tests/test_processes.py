"""What becomes of databases when a process forks or ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import forebay

MEMORY_BYTES = 64 << 20
PATIENCE_S = 120

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")


def open_at(path: str) -> forebay.Database:
    return forebay.open(path, memory_bytes=MEMORY_BYTES)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "database")


@pytest.fixture
def db(path: str) -> Iterator[forebay.Database]:
    with open_at(path) as database:
        yield database


def begin(body: Callable[[], object]) -> int:
    """Runs `body` in a forked child, which ends as Python ends. One that hangs is killed."""
    child = os.fork()
    if child:
        return child
    signal.alarm(PATIENCE_S)
    status = 1
    try:
        body()
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(status)


def end(child: int, expected: int = 0) -> None:
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == expected


def test_a_child_is_refused(db: forebay.Database, path: str, tmp_path: Path) -> None:
    db[b"key"] = b"value"
    batch, snapshot, items, begun = db.batch(), db.snapshot(), db.items(), db.keys()
    batch.put(b"child", b"")
    requests = db.requests(b"r/")
    for number in range(10):
        db[b"%d" % number] = b""
    ahead = db.keys()
    next(ahead), next(ahead)
    assert next(begun) == b"key"

    def child() -> None:
        calls: list[Callable[[], object]] = [
            lambda: db.get(b"key"),
            lambda: db[b"key"],
            lambda: b"key" in db,
            lambda: db.get_into(b"key", bytearray(9)),
            lambda: db.multi_get([b"key"]),
            lambda: db.put(b"child", b"", sync=True),
            lambda: db.delete(b"key"),
            lambda: db.merge(b"key", b"1"),
            lambda: db.delete_range(b"a", b"z"),
            lambda: db.batch(),
            lambda: batch.write(),
            lambda: db.snapshot(),
            lambda: list(db),
            lambda: db.items(),
            lambda: list(items),
            lambda: next(begun),
            lambda: next(ahead),
            lambda: db.sync(),
            lambda: db.flush(),
            lambda: db.compact(),
            lambda: db.approximate_size(b"a", b"z"),
            lambda: db.property("forebay.levelstats"),
            lambda: db.properties(),
            lambda: snapshot[b"key"],
            lambda: snapshot.get(b"key"),
            lambda: b"key" in snapshot,
            lambda: snapshot.multi_get([b"key"]),
            lambda: list(snapshot),
            lambda: db.requests(b"r/"),
            lambda: requests.write(b"client", 1, batch),
        ]
        for call in calls:
            with pytest.raises(forebay.InvalidError, match="opened before a fork"):
                call()
        # The database is the parent's.
        with pytest.raises(forebay.BusyError):
            open_at(path)
        with open_at(str(tmp_path / "own")) as own:
            own.put(b"key", b"value", sync=True)
            assert own[b"key"] == b"value"
            end(begin(own.close))
            assert own[b"key"] == b"value"
        begun.close()
        snapshot.release()
        db.close()
        db.close()
        assert db.closed

    process = begin(child)
    db.put(b"parent", b"", sync=True)
    end(process)
    del items
    assert list(ahead)
    assert snapshot[b"key"] == b"value"
    batch.clear()
    del batch, begun
    snapshot.release()
    db.close()
    with open_at(path) as again:
        assert b"parent" in again and b"child" not in again
    with open_at(str(tmp_path / "own")) as own:
        assert own[b"key"] == b"value"


def test_a_child_keeps_no_lock(path: str) -> None:
    db = open_at(path)
    ready, go = os.pipe()

    def child() -> None:
        assert os.read(ready, 1) == b"x"
        with open_at(path) as own:
            assert own[b"parent"] == b"later"
            own[b"child"] = b""

    process = begin(child)
    db.close()
    with open_at(path) as db:
        db[b"parent"] = b"later"
    os.write(go, b"x")
    end(process)
    os.close(ready)
    os.close(go)
    with open_at(path) as db:
        assert b"child" in db


def test_a_child_ends_while_another_thread_is_in_the_database(db: forebay.Database, path: str) -> None:
    over = threading.Event()
    shared = db.keys()

    def work() -> None:
        number = 0
        while not over.is_set():
            db[b"thread %d" % number] = b""
            next(shared, None)
            number += 1

    thread = threading.Thread(target=work)
    thread.start()

    def child() -> None:
        with pytest.raises(forebay.InvalidError):
            db.put(b"child", b"")
        with pytest.raises(forebay.InvalidError):
            next(shared)
        shared.close()
        db.close()

    try:
        for number in range(20):
            process = begin(child)
            db.put(b"round %d" % number, b"", sync=True)
            end(process)
    finally:
        over.set()
        thread.join()
    db.close()
    del shared
    with open_at(path) as again:
        assert b"child" not in again
        assert len(list(again.keys(prefix=b"round "))) == 20


LEFT: forebay.Database | None = None


def use_what_is_left(number: int) -> str:
    assert LEFT is not None
    try:
        LEFT.put(b"child %d" % number, b"", sync=True)
    except forebay.InvalidError as error:
        return str(error)
    return "written"


def test_a_pool_of_children(db: forebay.Database, path: str) -> None:
    global LEFT
    LEFT = db
    try:
        with multiprocessing.get_context("fork").Pool(4) as pool:
            result = pool.map_async(use_what_is_left, range(20))
            for number in range(20):
                db.put(b"parent %d" % number, b"", sync=True)
            said = result.get(PATIENCE_S)
            pool.close()
            pool.join()
    finally:
        LEFT = None
    assert len(said) == 20 and all("before a fork" in text for text in said)
    db.close()
    with open_at(path) as again:
        assert len(list(again.keys(prefix=b"parent "))) == 20 and not list(again.keys(prefix=b"child "))


def test_a_child_exits_as_python_does(path: str) -> None:
    """The interpreter's end drops what is open, which is the parent's."""
    program = f"""
import os, sys, forebay
db = forebay.open({path!r}, memory_bytes={MEMORY_BYTES})
kept = [db.snapshot(), db.items(), db.batch()]
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        import signal
        signal.alarm({PATIENCE_S})
        if number % 2 == 0:
            db.close()
        sys.exit(0)
    children.append(child)
    db.put(b"parent %d" % number, b"", sync=True)
assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 4
db.put(b"last", b"", sync=True)
"""
    run(program)
    with open_at(path) as db:
        assert len(list(db)) == 5


@pytest.mark.parametrize(
    "ending", ["sys.exit(0)", "pass", "os.fork() or sys.exit(0); os.wait()", "1 / 0", "db.sync(); os._exit(0)"]
)
def test_a_process_that_ends_without_closing(path: str, ending: str) -> None:
    program = f"""
import os, sys, threading, forebay

def hold(db):
    threading.Event().wait()

other = forebay.open({path!r} + "-closed", memory_bytes={MEMORY_BYTES})
db = forebay.open({path!r}, memory_bytes={MEMORY_BYTES})
threading.Thread(target=hold, args=(db,), daemon=True).start()
other.close()
for number in range(5000):
    db[b"%d" % number] = b""
{ending}
"""
    run(program, status=1 if "/" in ending else 0)
    with open_at(path) as db:
        assert len(list(db)) == 5000


def test_a_child_keeps_no_lock_of_a_parent_that_is_killed(path: str) -> None:
    alive, dead = os.pipe()
    program = f'''
import os, signal, sys, forebay
db = forebay.open({path!r}, memory_bytes={MEMORY_BYTES})
db.put(b"key", b"value", sync=True)
if os.fork() == 0:
    signal.alarm({PATIENCE_S})
    os.read({alive}, 1)
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
'''
    os.set_inheritable(alive, True)
    try:
        run(program, status=-signal.SIGKILL)
        with open_at(path) as db:
            assert db[b"key"] == b"value"
    finally:
        os.close(dead)
        os.close(alive)


IMPORT = '''
try:
    import forebay
except ImportError as error:
    assert "not in a subinterpreter" in str(error), error
else:
    raise AssertionError("not refused")
'''


def test_a_subinterpreter_is_refused(path: str) -> None:
    program = f'''
import signal
signal.alarm({PATIENCE_S})
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

def refused():
    failed = interpreters.run_string(interpreters.create(), {IMPORT!r})
    assert failed is None, failed

refused()
import forebay
with forebay.open({path!r}, memory_bytes={MEMORY_BYTES}) as db:
    refused()
    db[b"key"] = b"value"
'''
    run(program)
    with open_at(path) as db:
        assert db[b"key"] == b"value"


def run(program: str, status: int = 0) -> None:
    """Runs a program in a process of its own, which must end with this status."""
    child = os.posix_spawn(sys.executable, [sys.executable, "-c", program], os.environ)
    end(child, status)
