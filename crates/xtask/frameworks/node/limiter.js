// rate-limiter-flexible on both client libraries: as many are let through as it says.
const assert = require("node:assert");
const { RateLimiterRedis, BurstyRateLimiter } = require("rate-limiter-flexible");
const Redis = require("ioredis");
const { createClient } = require("redis");

async function count(limiter, tries) {
  const outcomes = await Promise.allSettled(Array.from({ length: tries }, () => limiter.consume("user")));
  return outcomes.filter((outcome) => outcome.status === "fulfilled").length;
}

async function main() {
  const port = Number(process.argv[2]);
  const ioredis = new Redis({ port, db: 12 });
  const node = createClient({ socket: { port }, database: 12 });
  await node.connect();
  for (const [name, storeClient] of [["ioredis", ioredis], ["node", node]]) {
    const useRedisPackage = name === "node";
    const options = { storeClient, useRedisPackage, keyPrefix: name, points: 10, duration: 60, blockDuration: 60 };
    const limiter = new RateLimiterRedis(options);
    assert.strictEqual(await count(limiter, 50), 10);
    assert((await limiter.get("user")).msBeforeNext > 50000);
    await limiter.delete("user");
    assert.strictEqual(await count(limiter, 5), 5);
    const burst = new RateLimiterRedis({ ...options, keyPrefix: `${name}-burst`, points: 4, blockDuration: 0 });
    const few = new RateLimiterRedis({ ...options, keyPrefix: `${name}-few`, points: 2, blockDuration: 0 });
    assert.strictEqual(await count(new BurstyRateLimiter(few, burst), 20), 6);
  }
  ioredis.disconnect();
  node.destroy();
}

main().catch((error) => { console.error(error); process.exit(1); });
