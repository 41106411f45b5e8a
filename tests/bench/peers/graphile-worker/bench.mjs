// graphile-worker under the benchmark. Jobs are enqueued with addJobs and drained as its own performance test does it: by
// several processes that each run until there is nothing left.

import { connectionString, load, main } from "../node/measure.mjs";

const { Logger, makeWorkerUtils, run, runMigrations, runOnce } = load("graphile-worker");

process.env.NO_LOG_SUCCESS = "1"; // As in its performance test: no line for each job.
const logger = new Logger(() => (level, message) => {
  if (level === "error" || level === "warning") process.stderr.write(`graphile-worker: ${message}\n`);
});

const BATCHED = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
const TUNED = { ...BATCHED, localQueue: { size: 2000 } };
const PLAIN = { localQueue: { size: -1 }, completeJobBatchDelay: -1, failJobBatchDelay: -1 };

function options(url, { concurrentJobs, connections, localQueue, completeJobBatchDelay, failJobBatchDelay }, taskList) {
  return {
    preset: {
      worker: {
        connectionString: connectionString(url),
        concurrentJobs,
        maxPoolSize: connections,
        localQueue,
        completeJobBatchDelay,
        failJobBatchDelay,
        logger,
      },
    },
    noHandleSignals: true,
    taskList,
  };
}

await main({
  name: "graphile-worker",
  tables: ["graphile_worker._private_jobs"],
  settings: {
    "enqueue batch100": { batch: 100, connections: 4 },
    "enqueue bulk": { batch: 1000, connections: 4 },
    "drain batched": { processes: 2, concurrentJobs: 24, connections: 25, ...BATCHED },
    "drain tuned": { processes: 2, concurrentJobs: 24, connections: 25, ...TUNED },
    "drain plain": { processes: 1, concurrentJobs: 24, connections: 25, ...PLAIN },
    "single plain": { processes: 1, concurrentJobs: 32, connections: 33, ...PLAIN },
    "latency batched": { concurrentJobs: 24, connections: 25, ...BATCHED },
    "latency plain": { concurrentJobs: 24, connections: 25, ...PLAIN },
    "held batched": { processes: 2, concurrentJobs: 24, connections: 25, ...BATCHED },
    "held plain": { processes: 1, concurrentJobs: 24, connections: 25, ...PLAIN },
  },

  async migrate(url) {
    await runMigrations(options(url, {}));
  },

  async openProducer(url, { connections }) {
    const utils = await makeWorkerUtils(options(url, { connections }));
    return {
      insert: (payloads) => utils.addJobs(payloads.map((payload) => ({ identifier: "noop", payload }))),
      insertOne: (payload) => utils.addJob("noop", payload),
      close: () => utils.release(),
    };
  },

  async startWorkers(url, settings, onJob) {
    const taskList = { noop: (payload) => void onJob(payload) };
    if (settings.idle) {
      const runner = await run(options(url, settings, taskList));
      return { finished: runner.promise, stop: () => runner.stop() };
    }
    return { finished: runOnce(options(url, settings, taskList)), stop: async () => {} };
  },

  async unfinished(client) {
    const { rows } = await client.query("select count(*)::int as n from graphile_worker._private_jobs");
    return rows[0].n;
  },
});
