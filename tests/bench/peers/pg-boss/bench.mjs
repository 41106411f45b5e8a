// pg-boss under the benchmark. Batched, its workers (`work`) take whole batches and go on without a pause while batches are full;
// plain, each of 32 loops fetches one job and completes it, since `work` without batches pauses between two jobs.

import { connectionString, load, main } from "../node/measure.mjs";

const { PgBoss } = load("pg-boss");

const QUEUE = "noop";
const JOB_TABLE = "pgboss.job";

async function open(url, { connections, notify = false, workers = false }) {
  const boss = new PgBoss({
    connectionString: connectionString(url),
    max: connections,
    useListenNotify: notify && workers,
    supervise: workers,
    schedule: false,
  });
  boss.on("error", (error) => process.stderr.write(`pg-boss: ${error.message}\n`));
  await boss.start();
  return boss;
}

/** `loops` loops that each fetch and complete until there is nothing left. */
function drainByFetch(boss, { loops, batchSize }, onJob) {
  return Promise.all(
    Array.from({ length: loops }, async () => {
      for (;;) {
        const jobs = await boss.fetch(QUEUE, { batchSize });
        if (jobs.length === 0) return;
        for (const job of jobs) onJob(job.data);
        await boss.complete(QUEUE, jobs.map((job) => job.id));
      }
    }),
  );
}

const WORK = { api: "work", burstWhenBatchFull: true };

await main({
  name: "pg-boss",
  tables: [JOB_TABLE],
  settings: {
    "enqueue batch100": { batch: 100, connections: 4 },
    "enqueue bulk": { batch: 1000, connections: 4 },
    "drain batched": { processes: 1, ...WORK, batchSize: 1000, localConcurrency: 4, connections: 10 },
    "drain plain": { processes: 1, api: "fetch", batchSize: 1, loops: 32, connections: 32 },
    "single plain": { processes: 1, api: "fetch", batchSize: 1, loops: 32, connections: 32 },
    "latency batched": { ...WORK, notify: true, batchSize: 50, localConcurrency: 2, connections: 10 },
    "latency plain": { api: "work", notify: true, batchSize: 1, localConcurrency: 8, connections: 10 },
    "held batched": { processes: 1, ...WORK, batchSize: 1000, localConcurrency: 4, connections: 10 },
  },

  async migrate(url) {
    const boss = await open(url, { connections: 2 });
    await boss.createQueue(QUEUE, { notify: true, ...JSON.parse(process.env.PEER_QUEUE ?? "{}") });
    await boss.stop();
  },

  async openProducer(url, { connections }) {
    const boss = await open(url, { connections });
    return {
      insert: (payloads) => boss.insert(QUEUE, payloads.map((data) => ({ data }))),
      insertOne: (data) => boss.send(QUEUE, data),
      close: () => boss.stop(),
    };
  },

  async startWorkers(url, settings, onJob) {
    const boss = await open(url, { ...settings, workers: true });
    if (settings.api === "fetch") {
      const finished = drainByFetch(boss, settings, onJob).then(() => boss.stop());
      return { finished, stop: async () => {} };
    }
    const { batchSize, localConcurrency, burstWhenBatchFull = false } = settings;
    let stopped;
    const finished = new Promise((resolve) => (stopped = resolve));
    const polling = { pollingIntervalSeconds: 0.5, notifyPollingIntervalSeconds: 0.5 }; // The least that it allows.
    await boss.work(QUEUE, { batchSize, localConcurrency, burstWhenBatchFull, ...polling }, async (jobs) => {
      for (const job of jobs) onJob(job.data);
    });
    return {
      finished,
      // Waits for what runs, and with that for its completion in the database.
      async stop() {
        await boss.offWork(QUEUE, { wait: true });
        stopped();
        await boss.stop();
      },
    };
  },

  async unfinished(client) {
    const { rows } = await client.query(`select count(*)::int as n from ${JOB_TABLE} where name = $1 and state <> 'completed'`, [QUEUE]);
    return rows[0].n;
  },
});
