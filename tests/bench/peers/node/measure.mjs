// What the two Node.js peers share: arguments, processes, clocks, the held transaction and the JSON line.
//
// A peer is an object { name, tables, settings, migrate, openProducer, startWorkers, unfinished }; see graphile-worker/bench.mjs.
// Workers run in processes of their own, so that this one only starts them and takes the time.

import { fork } from "node:child_process";
import { createRequire } from "node:module";
import { userInfo } from "node:os";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";

const require = createRequire(`${process.env.PEER_DIR}/package.json`);
const PAYLOAD_BYTES = 100;
const BULK = 1000; // Jobs a call where a scenario enqueues before it takes the time.

/** A package that `run --install` put into PEER_DIR. */
export function load(name) {
  return require(name);
}

export function versionOf(name) {
  return require(`${process.env.PEER_DIR}/node_modules/${name}/package.json`).version;
}

const pg = load("pg");

/** A libpq URL as node-postgres wants it: the user is named, as libpq would have done. */
export function connectionString(url) {
  if (/^[a-z]+:\/\/[^/]*@/.test(url) || /[?&]user=/.test(url)) return url;
  const user = encodeURIComponent(process.env.PGUSER ?? userInfo().username);
  return `${url}${url.includes("?") ? "&" : "?"}user=${user}`;
}

/** An object that is PAYLOAD_BYTES long as JSON, whatever the id. */
export function payload(id) {
  const empty = JSON.stringify({ id, pad: "" }).length;
  return { id, pad: "x".repeat(PAYLOAD_BYTES - empty) };
}

function percentile(sorted, share) {
  return sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)];
}

function progress(text) {
  process.stderr.write(`${text}\n`);
}

/** Tells the benchmark on stdout when the measured time begins and ends, so that it can tell what that costs. */
function mark(word) {
  console.log(word);
}

async function connect(url) {
  const client = new pg.Client({ connectionString: connectionString(url) });
  await client.connect();
  return client;
}

/** Inserts `jobs` jobs, `batch` a call, on `concurrency` connections at once; returns seconds. */
async function enqueue(producer, jobs, batch, concurrency) {
  let next = 0;
  const started = performance.now();
  await Promise.all(
    Array.from({ length: concurrency }, async () => {
      while (next < jobs) {
        const first = next;
        next = Math.min(jobs, first + batch);
        await producer.insert(Array.from({ length: next - first }, (_, i) => payload(first + i)));
      }
    }),
  );
  return (performance.now() - started) / 1000;
}

async function measureEnqueue(peer, url, settings, jobs) {
  await peer.migrate(url);
  const producer = await peer.openProducer(url, settings);
  await producer.insert([payload(0)]); // Connections and plans are there before the time starts.
  mark("measuring");
  const seconds = await enqueue(producer, jobs, settings.batch, settings.connections);
  mark("measured");
  await producer.close();
  const client = await connect(url);
  const there = await peer.unfinished(client);
  await client.end();
  if (there !== jobs + 1) throw new Error(`${there} jobs are in the database, not ${jobs + 1}`);
  return { seconds, jobs_per_second: jobs / seconds };
}

/** Starts `count` worker processes, each connected to nothing yet but with its packages loaded. */
async function startProcesses(peer, url, scenario, mode, settings, count, onCount) {
  const children = [];
  for (let i = 0; i < count; i++) {
    const child = fork(process.argv[1], ["--worker"], { stdio: ["ignore", 2, 2, "ipc"] });
    child.jobs = 0;
    child.finished = new Promise((resolve, reject) => {
      child.on("message", (message) => {
        if (message.jobs !== undefined) {
          child.jobs = message.jobs;
          onCount(children.reduce((sum, each) => sum + each.jobs, 0));
        }
        if (message.finished) resolve();
      });
      child.on("exit", (code) => reject(new Error(`a worker process of ${peer.name} ended with status ${code}`)));
    });
    child.finished.catch(() => {}); // Waited for below; a failure before that is reported there.
    child.send({ prepare: { url, scenario, mode, settings } });
    children.push(child);
  }
  await Promise.all(
    children.map((child) => new Promise((resolve) => child.on("message", (m) => m.ready && resolve()))),
  );
  return children;
}

/** drain, single and held: `jobs` jobs are there, and the time runs until the last is finished in the database. */
async function measureDrain(peer, url, scenario, mode, settings, jobs) {
  await peer.migrate(url);
  const producer = await peer.openProducer(url, { connections: 4 });
  await enqueue(producer, jobs, BULK, 4);
  await producer.close();
  progress(`${peer.name}: ${jobs} jobs enqueued`);

  const client = await connect(url);
  for (const table of peer.tables) await client.query(`vacuum analyze ${table}`);

  let counted = 0;
  let heldAt;
  let countedWhenHeld;
  let stopped = false;
  let holding = Promise.resolve();
  const hold = async () => {
    // A snapshot and a transaction id: it holds back vacuum as a long report and as a long write both do.
    await client.query("begin isolation level repeatable read; select pg_current_xact_id()");
    heldAt = performance.now();
    countedWhenHeld = counted;
    progress(`${peer.name}: a transaction is held open after ${counted} jobs`);
  };
  let holdAsked = false;
  const children = await startProcesses(peer, url, scenario, mode, settings, settings.processes, (sum) => {
    counted = sum;
    if (scenario === "held" && !holdAsked && sum >= jobs / 3) {
      holdAsked = true;
      holding = hold();
    }
    if (!stopped && sum >= jobs) {
      stopped = true;
      for (const child of children) child.send({ stop: true });
    }
  });

  const samples = [];
  let last = 0;
  mark("measuring");
  const started = performance.now();
  const sampler = setInterval(() => {
    samples.push(counted - last);
    last = counted;
    progress(`${peer.name}: ${counted} of ${jobs}`);
  }, 1000);
  for (const child of children) child.send({ start: true });
  await Promise.all(children.map((child) => child.finished));
  let ended = performance.now();
  clearInterval(sampler);
  await holding;
  if (heldAt !== undefined) await client.query("commit");
  // A peer may say that it is done while its last completions are on their way: the time ends when they are there.
  const patience = ended + 5000;
  let left = await peer.unfinished(client);
  while (left !== 0 && ended < patience) {
    await delay(2);
    left = await peer.unfinished(client);
    ended = performance.now();
  }
  mark("measured");
  for (const child of children) child.disconnect();
  await client.end();
  if (left !== 0 || counted !== jobs) throw new Error(`${left} jobs are unfinished, ${counted} of ${jobs} ran`);

  const seconds = (ended - started) / 1000;
  const result = { seconds, jobs_per_second: jobs / seconds };
  if (scenario === "held") {
    result.jobs_per_second_before = countedWhenHeld / ((heldAt - started) / 1000);
    result.jobs_per_second_during = (jobs - countedWhenHeld) / ((ended - heldAt) / 1000);
    result.jobs_each_second = samples;
  }
  return result;
}

/** Enqueues at a steady rate, whatever the workers do, and takes each job's time from there to its handler. */
async function measureLatency(peer, url, settings, rate, seconds) {
  const warmUp = Math.min(rate * 2, 200);
  const jobs = warmUp + Math.round(rate * seconds);
  await peer.migrate(url);
  const enqueued = new Float64Array(jobs);
  const latencies = [];
  let seen = 0;
  let allSeen;
  const all = new Promise((resolve) => (allSeen = resolve));
  const workers = await peer.startWorkers(url, { ...settings, idle: true }, ({ id }) => {
    if (id >= warmUp) latencies.push(performance.now() - enqueued[id]);
    if (++seen === jobs) allSeen();
  });
  const producer = await peer.openProducer(url, { connections: 4 });
  const inserts = [];
  await delay(500);
  mark("measuring");
  const started = performance.now();
  for (let id = 0; id < jobs; id++) {
    const wait = started + (id * 1000) / rate - performance.now();
    if (wait > 0) await delay(wait);
    enqueued[id] = performance.now();
    inserts.push(producer.insertOne(payload(id)));
  }
  await Promise.all(inserts);
  const slow = setTimeout(() => progress(`${peer.name}: ${seen} of ${jobs} jobs ran 30 s after the last was enqueued`), 30_000);
  await all;
  clearTimeout(slow);
  const took = (performance.now() - started) / 1000;
  mark("measured");
  await workers.stop();
  await producer.close();
  latencies.sort((a, b) => a - b);
  return {
    seconds: took,
    jobs_per_second: jobs / took,
    start_latency_ms_p50: percentile(latencies, 0.5),
    start_latency_ms_p99: percentile(latencies, 0.99),
  };
}

/** The worker process: prepares, starts on a word from the parent, tells how many jobs ran. */
function work(peer) {
  let jobs = 0;
  let prepared;
  let workers;
  let told = -1;
  const tell = () => {
    if (jobs !== told) process.send({ jobs: (told = jobs) });
  };
  process.on("disconnect", () => process.exit()); // The parent is through with it, or was killed.
  process.on("message", async (message) => {
    if (message.prepare) {
      prepared = message.prepare;
      process.send({ ready: true });
    } else if (message.start) {
      const timer = setInterval(tell, 5);
      workers = await peer.startWorkers(prepared.url, prepared.settings, () => jobs++);
      await workers.finished;
      clearInterval(timer);
      tell();
      process.send({ finished: true });
    } else if (message.stop) {
      await workers.stop();
    }
  });
}

export async function main(peer) {
  if (process.argv[2] === "--worker") return work(peer);
  const { values } = parseArgs({
    options: {
      "database-url": { type: "string" },
      scenario: { type: "string" },
      mode: { type: "string" },
      jobs: { type: "string", default: "0" },
      rate: { type: "string", default: "100" },
      seconds: { type: "string", default: "10" },
    },
  });
  const url = values["database-url"];
  const { scenario, mode } = values;
  const jobs = Number(values.jobs);
  const known = peer.settings[`${scenario} ${mode}`];
  if (!url) throw new Error("--database-url is missing");
  if (!known) throw new Error(`--scenario ${scenario} --mode ${mode}: not one of those that --modes lists`);
  if (scenario !== "latency" && !(Number.isInteger(jobs) && jobs > 0)) throw new Error("--jobs must be a whole number above 0");
  // Other settings than ours can be tried: PEER_SETTINGS='{"processes": 4}'.
  const settings = { ...known, ...JSON.parse(process.env.PEER_SETTINGS ?? "{}") };

  let result;
  if (scenario === "enqueue") result = await measureEnqueue(peer, url, settings, jobs);
  else if (scenario === "latency") result = await measureLatency(peer, url, settings, Number(values.rate), Number(values.seconds));
  else result = await measureDrain(peer, url, scenario, mode, settings, jobs);

  const { seconds, jobs_per_second, ...more } = result;
  const line = {
    peer: peer.name,
    version: versionOf(peer.name),
    mode,
    scenario,
    jobs: scenario === "latency" ? Math.round(Number(values.rate) * Number(values.seconds)) : jobs,
    seconds,
    jobs_per_second,
    start_latency_ms_p50: null,
    start_latency_ms_p99: null,
    ...more,
    payload_bytes: PAYLOAD_BYTES,
    settings: `${describe(settings)}; Node.js ${process.versions.node}`,
  };
  console.log(JSON.stringify(line));
}

function describe(settings) {
  return Object.entries(settings)
    .map(([name, value]) => `${name} ${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join(", ");
}
