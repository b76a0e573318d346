// BullMQ: jobs with priorities, delays, retries, a flow of children, a repeated job, pausing, cleaning.
const assert = require("node:assert");
const { Queue, Worker, QueueEvents, FlowProducer } = require("bullmq");

const connection = { port: Number(process.argv[2]), db: 11, maxRetriesPerRequest: null };

async function main() {
  const queue = new Queue("work", { connection });
  const events = new QueueEvents("work", { connection });
  await events.waitUntilReady();
  const seen = [];
  const work = async (job) => {
    if (job.name === "stubborn" && job.attemptsMade < 2) throw new Error("not yet");
    if (job.name === "parent") return Object.values(await job.getChildrenValues()).reduce((a, b) => a + b, 0);
    seen.push(job.data.n);
    return job.data.n * 2;
  };
  await queue.pause();
  const jobs = await queue.addBulk([3, 1, 2].map((n) => ({ name: "job", data: { n }, opts: { priority: n } })));
  await queue.resume();
  const worker = new Worker("work", work, { connection });
  for (const job of jobs) assert.strictEqual(await job.waitUntilFinished(events, 20000), job.data.n * 2);
  assert.deepStrictEqual(seen, [1, 2, 3]);
  const stubborn = await queue.add("stubborn", { n: 5 }, { attempts: 3, backoff: { type: "fixed", delay: 50 } });
  assert.strictEqual(await stubborn.waitUntilFinished(events, 20000), 10);
  const late = await queue.add("late", { n: 7 }, { delay: 300 });
  assert.strictEqual(await queue.getDelayedCount(), 1);
  assert.strictEqual(await late.waitUntilFinished(events, 20000), 14);
  const flows = new FlowProducer({ connection });
  const children = [1, 2, 3].map((n) => ({ name: "child", queueName: "work", data: { n } }));
  const flow = await flows.add({ name: "parent", queueName: "work", children });
  assert.strictEqual(await flow.job.waitUntilFinished(events, 20000), 12);
  await queue.upsertJobScheduler("often", { every: 100 }, { name: "tick", data: { n: 100 } });
  while (seen.filter((n) => n === 100).length < 3) await new Promise((wake) => setTimeout(wake, 20));
  await queue.removeJobScheduler("often");
  await queue.clean(0, 1000, "completed");
  await worker.close();
  await queue.obliterate({ force: true });
  assert.strictEqual(await queue.count(), 0);
  await Promise.all([queue.close(), events.close(), flows.close()]);
}

main().catch((error) => { console.error(error); process.exit(1); });
