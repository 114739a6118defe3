"""What programs do with redis-py, against a server at the port that is given."""

import sys
import threading

import redis


def strings(r):
    assert r.set("s", "v") and r.get("s") == "v" and r.get("nothing") is None
    assert r.set("s", "w", nx=True) is None and r.set("s", "w", get=True) == "v"
    assert r.incrby("n", 5) == 5 and r.incrbyfloat("n", 0.5) == 5.5
    assert r.mset({"a": "1", "b": "2"}) and r.mget("a", "nothing", "b") == ["1", None, "2"]
    assert r.expire("a", 100) and 90 < r.ttl("a") <= 100 and r.persist("a") and r.ttl("a") == -1
    assert r.delete("a", "b", "nothing") == 2


def collections(r):
    assert r.hset("h", mapping={"f": "1", "g": "2"}) == 2 and r.hgetall("h") == {"f": "1", "g": "2"}
    assert r.rpush("l", *map(str, range(100))) == 100 and r.lrange("l", -2, -1) == ["98", "99"]
    assert r.sadd("t", "a", "b", "c") == 3 and r.smembers("t") == {"a", "b", "c"}
    assert r.zadd("z", {"a": 1, "b": 2.5}) == 2
    # In RESP3 pairs are lists of their own.
    assert [tuple(pair) for pair in r.zrange("z", 0, -1, withscores=True)] == [("a", 1.0), ("b", 2.5)]
    assert r.zscore("z", "b") == 2.5 and r.zpopmin("z")
    r.mset({f"many:{i}": i for i in range(500)})
    assert len(set(r.scan_iter("many:*", count=50))) == 500
    assert dict(r.hscan_iter("h")) == {"f": "1", "g": "2"} and set(r.sscan_iter("t")) == {"a", "b", "c"}


def pipelines(r):
    with r.pipeline(transaction=False) as p:
        for i in range(1000):
            p.set(f"p:{i}", i).get(f"p:{i}")
        replies = p.execute()
    assert replies[1::2] == [str(i) for i in range(1000)]

    def double(p):
        former = int(p.get("counter") or 1)
        p.multi()
        p.set("counter", former * 2)

    r.set("counter", 1)
    threads = [threading.Thread(target=lambda: r.transaction(double, "counter")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert r.get("counter") == "256"
    try:
        with r.pipeline() as p:
            p.set("s", "v").lpush("s", "x").execute()
        raise AssertionError("an error was expected")
    except redis.ResponseError as error:
        assert "WRONGTYPE" in str(error)


def waits(r):
    found = []
    waiter = threading.Thread(target=lambda: found.append(r.blpop(["queue"], timeout=20)))
    waiter.start()
    r.rpush("queue", "job")
    waiter.join()
    assert [tuple(pair) for pair in found] == [("queue", "job")]
    with r.pubsub() as p:
        p.subscribe("news")
        p.psubscribe("n*")
        while r.publish("news", "hello") < 2:
            pass
        kinds = set()
        while not {"message", "pmessage"} <= kinds:
            message = p.get_message(timeout=20)
            assert message is not None
            kinds.add(message["type"])


def scripts(r):
    add = r.register_script("return redis.call('incrby', KEYS[1], ARGV[1]) + 1")
    r.script_flush()
    r.delete("n")
    assert add(keys=["n"], args=[4]) == 5 and add(keys=["n"], args=[4]) == 9
    try:
        r.eval("return redis.call('nosuch')", 0)
        raise AssertionError("an error was expected")
    except redis.ResponseError as error:
        assert "Unknown Redis command" in str(error)


def users(r, connect):
    r.acl_setuser("smoke", enabled=True, passwords=["+secret"], categories=["+@read"], keys=["s*"])
    try:
        limited = connect(username="smoke", password="secret")
        assert limited.get("s") == "v"
        for act in (lambda: limited.set("s", "x"), lambda: limited.get("h")):
            try:
                act()
                raise AssertionError("an error was expected")
            except redis.exceptions.NoPermissionError:
                pass
    finally:
        assert r.acl_deluser("smoke") == 1
    assert r.acl_whoami() == "default" and "default" in r.acl_users()


def server(r):
    assert r.info("server")["redis_version"].startswith("7.0") and r.dbsize() > 0 and r.ping()
    assert r.client_setname("smoke") and r.client_getname() == "smoke"
    assert any(client["name"] == "smoke" for client in r.client_list())
    assert r.config_get("maxclients")["maxclients"] and r.command_count() > 150


def main():
    port = int(sys.argv[1])
    for protocol in (2, 3):
        def connect(**more):
            return redis.Redis(port=port, protocol=protocol, decode_responses=True, single_connection_client=False, **more)

        r = connect()
        r.flushall()
        strings(r)
        collections(r)
        pipelines(r)
        waits(r)
        scripts(r)
        users(r, connect)
        server(r)
    print("redis-py", redis.__version__)


main()
