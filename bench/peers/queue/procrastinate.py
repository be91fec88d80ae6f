"""procrastinate; `rust/kit` says what each operation answers."""
import asyncio
import json
import logging
import os
import sys
import time

import procrastinate
import psycopg

BATCH = 1000
SINGLY = 1000
GAP = 0.02
CONCURRENCY = 20
URL = os.environ["DATABASE_URL"]
BEST = os.environ.get("PEER_SETTINGS") == "best"
BOUND = float(os.environ.get("PEER_BOUND_SEC", "0"))

logging.basicConfig(level=logging.ERROR)
pool = {"min_size": 2, "max_size": CONCURRENCY + 4} if BEST else {}
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=URL, **pool))
# Jobs at the same time, and successful ones deleted instead of kept.
settings = {"concurrency": CONCURRENCY, "delete_jobs": "successful"} if BEST else {}
starts = {}
started = 0
first = None


def answer(what):
    print(json.dumps(what), flush=True)


@app.task(name="noop")
async def noop(id):
    global started, first
    first = first or time.monotonic()
    started += 1
    starts.setdefault(id, time.monotonic() * 1000)


def work():
    return asyncio.create_task(app.run_worker_async(install_signal_handlers=False, **settings))


async def insert(jobs):
    singly = 0 if BEST else min(jobs, SINGLY)
    began = time.monotonic()
    for id in range(singly):
        await noop.defer_async(id=id)
    took = {"jobs": singly, "seconds": time.monotonic() - began}
    for start in range(singly, jobs, BATCH):
        await noop.batch_defer_async(*({"id": id} for id in range(start, min(jobs, start + BATCH))))
    if singly == 0:
        took = {"jobs": jobs, "seconds": time.monotonic() - began}
    answer(took)


async def drain(jobs):
    begun, worker = time.monotonic(), work()
    async with await psycopg.AsyncConnection.connect(URL, autocommit=True) as client:
        while not worker.done():
            late = time.monotonic() - (first or begun) > BOUND
            if late or started >= jobs:
                left = (await (await client.execute(os.environ["PEER_LEFT"])).fetchone())[0]
                if late or left == 0:
                    return answer({"jobs": jobs - left, "seconds": time.monotonic() - (first or begun)})
            await asyncio.sleep(0.005)
    await worker


async def note_starts(jobs):
    begun, worker = time.monotonic(), work()
    print("READY", flush=True)
    while len(starts) < jobs and time.monotonic() - begun < BOUND and not worker.done():
        await asyncio.sleep(0.005)
    answer({"times": list(starts.items())})


async def produce(jobs):
    times = []
    for id in range(jobs):
        await asyncio.sleep(GAP)
        await noop.defer_async(id=id)
        times.append((id, time.monotonic() * 1000))
    answer({"times": times})


async def main(operation, jobs):
    async with app.open_async():
        if operation == "setup":
            await app.schema_manager.apply_schema_async()
        else:
            await {"insert": insert, "drain": drain, "work": note_starts, "produce": produce}[operation](jobs)
        # Workers that still run would be waited for.
        os._exit(0)


asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
