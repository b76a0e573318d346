// ioredis and node-redis: pipelines, transactions, scripts, blocking pops, messages, streams of keys.
const assert = require("node:assert");
const Redis = require("ioredis");
const { createClient } = require("redis");

async function main() {
  const port = Number(process.argv[2]);
  const a = new Redis({ port, db: 13 }), b = a.duplicate();
  const piped = await a.pipeline().set("k", 1).incrby("k", 4).lpush("k", 1).get("k").exec();
  assert.deepStrictEqual(piped.map(([error, reply]) => (error ? error.message.split(" ")[0] : reply)), ["OK", 5, "WRONGTYPE", "5"]);
  a.defineCommand("twice", { numberOfKeys: 1, lua: "return redis.call('get', KEYS[1]) * 2" });
  assert.strictEqual(await a.twice("k"), 10);
  assert.deepStrictEqual((await a.multi().hset("h", "x", 1).hgetall("h").exec())[1][1], { x: "1" });
  const popped = b.blpop("list", 10);
  await a.rpush("list", "item");
  assert.deepStrictEqual(await popped, ["list", "item"]);
  const heard = new Promise((resolve) => b.on("message", (channel, text) => resolve(text)));
  await b.subscribe("news");
  await a.publish("news", "hello");
  assert.strictEqual(await heard, "hello");
  for (let n = 0; n < 500; n++) a.set(`many:${n}`, n);
  let found = 0;
  for await (const keys of a.scanStream({ match: "many:*", count: 50 })) found += keys.length;
  assert.strictEqual(found, 500);
  a.disconnect(), b.disconnect();

  for (const RESP of [2, 3]) {
    const c = createClient({ RESP, socket: { port }, database: 14 });
    await c.connect();
    await c.flushDb();
    assert.deepStrictEqual(await c.multi().set("k", "v").get("k").zAdd("z", { score: 1.5, value: "m" }).exec(), ["OK", "v", 1]);
    assert.strictEqual(await c.zScore("z", "m"), 1.5);
    assert.deepStrictEqual({ ...(await (await c.hSet("h", { a: "1" }), c.hGetAll("h"))) }, { a: "1" });
    const id = await c.xAdd("s", "*", { n: "1" });
    assert.strictEqual((await c.xRange("s", "-", "+"))[0].id, id);
    assert.strictEqual(await c.eval("return ARGV[1]", { arguments: ["x"] }), "x");
    const other = c.duplicate();
    await other.connect();
    const message = new Promise((resolve) => other.pSubscribe("n*", resolve).then(() => c.publish("news", "hello")));
    assert.strictEqual(await message, "hello");
    await other.close();
    await c.close();
  }
}

main().catch((error) => { console.error(error); process.exit(1); });
