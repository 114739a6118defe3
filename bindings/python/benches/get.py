"""What reads cost through Python, against LevelDB's (plyvel) on the same data in the same run.

Prints nanoseconds a read, the best of several rounds in turns, and Forebay's as a ratio of plyvel's.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable

import plyvel

import forebay

VALUE_BYTES = 400


def best(ways: dict[str, Callable[[], int]], rounds: int, expected: int) -> dict[str, float]:
    """The best time of each way in nanoseconds for one of `expected` reads."""
    times = dict.fromkeys(ways, float("inf"))
    for _ in range(rounds):
        for name, way in ways.items():
            begun = time.perf_counter_ns()
            found = way()
            times[name] = min(times[name], (time.perf_counter_ns() - begun) / expected)
            assert found == expected, name
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--gets", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    count, chance = arguments.keys, random.Random(1)
    asked = [b"%020d" % chance.randrange(count) for _ in range(arguments.gets)]

    with tempfile.TemporaryDirectory() as folder, forebay.open(f"{folder}/ours") as ours:
        theirs = plyvel.DB(folder, create_if_missing=True, lru_cache_size=1 << 30)
        for number in range(count):
            key, value = b"%020d" % number, chance.randbytes(VALUE_BYTES)
            ours.put(key, value)
            theirs.put(key, value)
        ours.compact()
        theirs.compact_range()

        def gets(db: forebay.Database | plyvel.DB) -> Callable[[], int]:
            def run() -> int:
                get = db.get
                return sum(1 for key in asked if get(key) is not None)

            return run

        def scan_ours() -> int:
            return sum(1 for _ in ours.items())

        def scan_theirs() -> int:
            return sum(1 for _ in theirs)

        print(f"{'read':<8} {'forebay ns':>12} {'plyvel ns':>12} {'ratio':>8}")
        for name, ways, expected in [
            ("get", {"forebay": gets(ours), "plyvel": gets(theirs)}, len(asked)),
            ("scan", {"forebay": scan_ours, "plyvel": scan_theirs}, count),
        ]:
            times = best(ways, arguments.rounds, expected)
            ratio = times["forebay"] / times["plyvel"]
            print(f"{name:<8} {times['forebay']:>12.0f} {times['plyvel']:>12.0f} {ratio:>8.2f}")
        theirs.close()


if __name__ == "__main__":
    main()
