// What programs do with ioredis, from the folder that is given, against a server at the port that is given.

import assert from "node:assert/strict";
import { createRequire } from "node:module";

const Redis = createRequire(`${process.argv[3]}/`)("ioredis");

const port = Number(process.argv[2]);
const redis = new Redis({ port, lazyConnect: true, maxRetriesPerRequest: 1 });
await redis.connect();
await redis.flushall();

assert.equal(await redis.set("s", "v"), "OK");
assert.equal(await redis.get("s"), "v");
assert.equal(await redis.set("s", "w", "NX"), null);
assert.deepEqual(await redis.hset("h", { f: "1", g: "2" }), 2);
assert.deepEqual(await redis.hgetall("h"), { f: "1", g: "2" });
assert.equal(await redis.rpush("l", ..."abc"), 3);
assert.deepEqual(await redis.zadd("z", 1, "a", 2.5, "b"), 2);
assert.deepEqual(await redis.zrange("z", 0, -1, "WITHSCORES"), ["a", "1", "b", "2.5"]);
assert.equal((await redis.getBuffer("s")).toString(), "v");

const pipeline = redis.pipeline();
for (let i = 0; i < 1000; i++) pipeline.set(`p:${i}`, i).get(`p:${i}`);
const replies = await pipeline.exec();
assert.ok(replies.every(([error, reply], i) => error === null && (i % 2 === 0 ? reply === "OK" : reply === String((i - 1) / 2))));
const transaction = await redis.multi().incr("n").lpush("s", "x").exec();
assert.equal(transaction[0][1], 1);
assert.match(transaction[1][0].message, /WRONGTYPE/);

let found = 0;
for await (const keys of redis.scanStream({ match: "p:*", count: 100 })) found += keys.length;
assert.equal(found, 1000);

redis.defineCommand("raise", { numberOfKeys: 1, lua: "return redis.call('incrby', KEYS[1], ARGV[1])" });
assert.equal(await redis.raise("n", 4), 5);
assert.equal(await redis.raise("n", 4), 9);

const subscriber = redis.duplicate();
await subscriber.psubscribe("n*");
const message = new Promise((done) => subscriber.on("pmessage", (...parts) => done(parts)));
assert.equal(await redis.publish("news", "hello"), 1);
assert.deepEqual(await message, ["n*", "news", "hello"]);
const waiting = redis.duplicate();
const popped = waiting.blpop("queue", 20);
await redis.rpush("queue", "job");
assert.deepEqual(await popped, ["queue", "job"]);

for (const client of [redis, subscriber, waiting]) client.disconnect();
console.log("ioredis");
