// connect-redis: a session is kept, touched, listed and destroyed.
const assert = require("node:assert");
const { RedisStore } = require("connect-redis");
const { createClient } = require("redis");

async function main() {
  const client = createClient({ socket: { port: Number(process.argv[2]) }, database: 15 });
  await client.connect();
  const store = new RedisStore({ client, ttl: 60, scanCount: 10 });
  for (let n = 0; n < 50; n++) await store.set(`id${n}`, { cookie: {}, user: n });
  assert.strictEqual((await store.get("id7")).user, 7);
  await store.touch("id7", { cookie: { expires: new Date(Date.now() + 600000) } });
  assert((await client.ttl("sess:id7")) > 500);
  assert.strictEqual((await store.all()).length, 50);
  await store.destroy("id7");
  assert.strictEqual(await store.length(), 49);
  await store.clear();
  assert.strictEqual(await store.length(), 0);
  client.destroy();
}

main().catch((error) => { console.error(error); process.exit(1); });
