"""Procrastinate under the benchmark: asyncio workers, psycopg with its C part, batch_defer to enqueue.

Workers run in processes of their own (`bench.py --worker`), so that the first one only starts them and takes the time. They tell
how many jobs ran on stdout and take `start` from stdin. A worker with wait=False ends when nothing is left to fetch and what it
runs is finished in the database.
"""

import argparse
import asyncio
import json
import math
import os
import sys
import threading
import time

import procrastinate
import psycopg
from noop_app import make_app

PAYLOAD_BYTES = 100

SETTINGS = {
    "enqueue batch100": {"batch": 100, "connections": 4},
    "enqueue bulk": {"batch": 1000, "connections": 4},
    "drain plain": {"processes": 2, "workers": 16, "concurrency": 1, "connections": 32, "delete_jobs": "never"},
    "drain deleting": {"processes": 2, "workers": 16, "concurrency": 1, "connections": 32, "delete_jobs": "successful"},
    "single plain": {"processes": 1, "workers": 32, "concurrency": 1, "connections": 40, "delete_jobs": "never"},
    "latency plain": {"workers": 4, "concurrency": 4, "connections": 12, "delete_jobs": "never"},
    "held plain": {"processes": 2, "workers": 16, "concurrency": 1, "connections": 32, "delete_jobs": "never"},
}


def progress(text):
    print(f"procrastinate: {text}", file=sys.stderr, flush=True)


def payload(number):
    """Keyword arguments that are PAYLOAD_BYTES long as JSON, whatever the number."""
    empty = len(json.dumps({"number": number, "pad": ""}))
    return {"number": number, "pad": "x" * (PAYLOAD_BYTES - empty)}


def nothing(_number):
    """Does with a job what a no-op does."""


def mark(word):
    """Tells the benchmark on stdout when the measured time begins and ends, so that it can tell what that costs."""
    print(word, flush=True)


async def enqueue(noop, jobs, batch, concurrency):
    """Inserts `jobs` jobs, `batch` a call, from `concurrency` tasks at once; returns seconds."""
    firsts = iter(range(0, jobs, batch))

    async def insert():
        for first in firsts:
            await noop.batch_defer_async(*(payload(number) for number in range(first, min(jobs, first + batch))))

    started = time.perf_counter()
    await asyncio.gather(*(insert() for _ in range(concurrency)))
    return time.perf_counter() - started


async def prepare(url, jobs=0):
    app, noop = make_app(url, 4, nothing)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await enqueue(noop, jobs, 1000, 4)
    if jobs:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            await connection.execute("vacuum analyze procrastinate_jobs, procrastinate_events")
        progress(f"{jobs} jobs enqueued")


async def count(connection, where):
    return (await (await connection.execute(f"select count(*) from procrastinate_jobs where {where}")).fetchone())[0]


async def measure_enqueue(url, settings, jobs):
    await prepare(url)
    app, noop = make_app(url, settings["connections"], nothing)
    async with app.open_async():
        mark("measuring")
        seconds = await enqueue(noop, jobs, settings["batch"], settings["connections"])
        mark("measured")
    async with await psycopg.AsyncConnection.connect(url) as connection:
        there = await count(connection, "status = 'todo'")
    if there != jobs:
        raise RuntimeError(f"{there} jobs are in the database, not {jobs}")
    return {"seconds": seconds, "jobs_per_second": jobs / seconds}


def run_workers(app, settings, wait):
    """A worker fetches one job after the other, however many it runs at once: several fetch at once."""
    return [
        app.run_worker_async(
            concurrency=settings["concurrency"],
            wait=wait,
            delete_jobs=settings["delete_jobs"],
            install_signal_handlers=False,
        )
        for _ in range(settings["workers"])
    ]


def end_with_parent():
    """The parent closes stdin when it is through with the worker, and when it is killed."""
    sys.stdin.read()
    os._exit(1)


async def work(url, settings):
    """The worker process."""
    ran = 0

    def on_job(_number):
        nonlocal ran
        ran += 1

    async def tell():
        while True:
            await asyncio.sleep(0.05)
            print(ran, flush=True)

    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    threading.Thread(target=end_with_parent, daemon=True).start()
    app, _ = make_app(url, settings["connections"], on_job)
    async with app.open_async():
        telling = asyncio.create_task(tell())
        await asyncio.gather(*run_workers(app, settings, wait=False))
        telling.cancel()
    print(ran, "finished", flush=True)


async def start_process(url, settings):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        __file__,
        "--worker",
        "--database-url",
        url,
        env={**os.environ, "PEER_SETTINGS": json.dumps(settings)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if (await process.stdout.readline()).strip() != b"ready":
        raise RuntimeError("a worker process did not start")
    return process


async def measure_drain(url, settings, jobs, held):
    """drain, single and held: the time runs until the last job is finished in the database."""
    await prepare(url, jobs)
    processes = [await start_process(url, settings) for _ in range(settings["processes"])]
    counted = [0] * len(processes)
    third = asyncio.Event()

    async def follow(index, process):
        finished = False
        async for line in process.stdout:
            words = line.split()
            counted[index] = int(words[0])
            finished = len(words) == 2
            if sum(counted) >= jobs / 3:
                third.set()
            if finished:
                return
        raise RuntimeError("a worker process ended before its jobs did")

    async def hold():
        # A snapshot and a transaction id: it holds back vacuum as a long report and as a long write both do.
        await third.wait()
        connection = await psycopg.AsyncConnection.connect(url)
        await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
        await connection.execute("select pg_current_xact_id()")
        progress(f"a transaction is held open after {sum(counted)} jobs")
        return connection, time.perf_counter(), sum(counted)

    samples = []

    async def sample():
        last = 0
        while True:
            await asyncio.sleep(1)
            now = sum(counted)
            samples.append(now - last)
            last = now
            progress(f"{now} of {jobs}")

    mark("measuring")
    started = time.perf_counter()
    holding = asyncio.create_task(hold()) if held else None
    sampling = asyncio.create_task(sample())
    for process in processes:
        process.stdin.write(b"start\n")
    try:
        await asyncio.gather(*(follow(index, process) for index, process in enumerate(processes)))
        ended = time.perf_counter()
        mark("measured")
    finally:
        sampling.cancel()
        for process in processes:
            process.stdin.close()
            await process.wait()
    seconds = ended - started
    result = {"seconds": seconds, "jobs_per_second": jobs / seconds}
    if holding:
        connection, held_at, counted_when_held = await holding
        await connection.close()
        result["jobs_per_second_before"] = counted_when_held / (held_at - started)
        result["jobs_per_second_during"] = (jobs - counted_when_held) / (ended - held_at)
        result["jobs_each_second"] = samples

    async with await psycopg.AsyncConnection.connect(url) as connection:
        left = await count(connection, "status <> 'succeeded'")
    if left or sum(counted) != jobs:
        raise RuntimeError(f"{left} jobs are unfinished, {sum(counted)} of {jobs} ran")
    return result


def percentile(ordered, share):
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


async def measure_latency(url, settings, rate, seconds):
    """Enqueues at a steady rate, whatever the worker does, and takes each job's time from there to its handler."""
    warm_up = min(round(rate * 2), 200)
    jobs = warm_up + round(rate * seconds)
    enqueued = [0.0] * jobs
    latencies = []
    seen = 0
    everything = asyncio.Event()

    def on_job(number):
        nonlocal seen
        if number >= warm_up:
            latencies.append((time.perf_counter() - enqueued[number]) * 1000)
        seen += 1
        if seen == jobs:
            everything.set()

    await prepare(url)
    app, noop = make_app(url, settings["connections"], on_job)
    async with app.open_async():
        workers = asyncio.gather(*run_workers(app, settings, wait=True))
        await asyncio.sleep(0.5)
        deferring = []
        mark("measuring")
        started = time.perf_counter()
        for number in range(jobs):
            await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
            enqueued[number] = time.perf_counter()
            deferring.append(asyncio.create_task(noop.defer_async(**payload(number))))
        await asyncio.gather(*deferring)
        await everything.wait()
        took = time.perf_counter() - started
        mark("measured")
        workers.cancel()
        await asyncio.gather(workers, return_exceptions=True)
    latencies.sort()
    return {
        "seconds": took,
        "jobs_per_second": jobs / took,
        "start_latency_ms_p50": percentile(latencies, 0.5),
        "start_latency_ms_p99": percentile(latencies, 0.99),
    }


def main():
    parser = argparse.ArgumentParser(description="Measures Procrastinate.")
    parser.add_argument("--database-url", required=True)
    parser.add_argument("--scenario")
    parser.add_argument("--mode")
    parser.add_argument("--jobs", type=int, default=0)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    url = arguments.database_url
    other = json.loads(os.environ.get("PEER_SETTINGS", "{}"))
    if arguments.worker:
        asyncio.run(work(url, other))
        return

    name = f"{arguments.scenario} {arguments.mode}"
    if name not in SETTINGS:
        parser.error(f"--scenario {arguments.scenario} --mode {arguments.mode}: not one of those that --modes lists")
    if arguments.scenario != "latency" and arguments.jobs <= 0:
        parser.error("--jobs must be a whole number above 0")
    settings = {**SETTINGS[name], **other}
    jobs = arguments.jobs
    if arguments.scenario == "enqueue":
        measured = asyncio.run(measure_enqueue(url, settings, jobs))
    elif arguments.scenario == "latency":
        jobs = round(arguments.rate * arguments.seconds)
        measured = asyncio.run(measure_latency(url, settings, arguments.rate, arguments.seconds))
    else:
        measured = asyncio.run(measure_drain(url, settings, jobs, arguments.scenario == "held"))
    line = {
        "peer": "procrastinate",
        "version": procrastinate.__version__,
        "mode": arguments.mode,
        "scenario": arguments.scenario,
        "jobs": jobs,
        "start_latency_ms_p50": None,
        "start_latency_ms_p99": None,
        **measured,
        "payload_bytes": PAYLOAD_BYTES,
        "settings": ", ".join(f"{key} {value}" for key, value in settings.items())
        + f"; Python {sys.version.split()[0]}, psycopg {psycopg.__version__} ({psycopg.pq.__impl__})",
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
