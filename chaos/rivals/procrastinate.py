"""procrastinate, four jobs at once: setup, enqueue N, work.

By default nobody takes over the jobs of a worker that died. With RESCUE=prompt the recipe of its documentation, which
looks for stalled jobs and retries them, is run every second, with workers that beat every second.
"""
import asyncio
import os
import sys

import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))
PROMPT = os.environ.get("RESCUE") == "prompt"
BEAT = 1
STALLED = 3


def effect(line):
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(line + "\n")


@app.task(name="step")
async def step(n):
    effect(f"b {n}")
    await asyncio.sleep(0.1)
    effect(f"e {n}")


async def rescue():
    while True:
        await asyncio.sleep(BEAT)
        try:
            for job in await app.job_manager.get_stalled_jobs(seconds_since_heartbeat=STALLED):
                await app.job_manager.retry_job(job)
        except procrastinate.exceptions.ConnectorException as error:
            print("the rescue goes on:", error, flush=True)


async def work():
    if not PROMPT:
        await app.run_worker_async(concurrency=4)
        return
    rescuer = asyncio.create_task(rescue())
    try:
        await app.run_worker_async(concurrency=4, update_heartbeat_interval=BEAT, stalled_worker_timeout=STALLED)
    finally:
        rescuer.cancel()


async def main(operation, count):
    async with app.open_async():
        if operation == "setup":
            await app.schema_manager.apply_schema_async()
        elif operation == "enqueue":
            for n in range(count):
                await step.defer_async(n=n)
                print(n, flush=True)
        else:
            await work()


asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
