// graphile-worker, four jobs at once: setup, enqueue N, work.
//
// The locks of a worker that died end after four hours, which cannot be set. Whoever knows that a worker is dead may unlock
// its jobs; with RESCUE=prompt that is done before the next worker starts, since only one runs at a time. What the dead one
// had sent may still be on its way through the server, and is waited for.
import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { makeWorkerUtils, run, runMigrations } from 'graphile-worker'

const [operation, count] = process.argv.slice(2)
const preset = { worker: { connectionString: process.env.DATABASE_URL, concurrentJobs: 4 } }
const effect = line => appendFileSync(process.env.EFFECTS, line + '\n')

async function unlockTheDead () {
  const utils = await makeWorkerUtils({ preset })
  const others = `select count(*)::int from pg_stat_activity
    where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()`
  const left = async () => (await utils.withPgClient(client => client.query(others))).rows[0].count
  for (let look = 0; look < 100 && await left() > 0; look++) await sleep(50)
  const locked = 'select distinct locked_by from graphile_worker.jobs where locked_by is not null'
  const { rows } = await utils.withPgClient(client => client.query(locked))
  if (rows.length > 0) await utils.forceUnlockWorkers(rows.map(row => row.locked_by))
  await utils.release()
}

if (operation === 'setup') {
  await runMigrations({ preset })
} else if (operation === 'enqueue') {
  const utils = await makeWorkerUtils({ preset })
  for (let n = 0; n < Number(count); n++) {
    await utils.addJob('step', { n })
    console.log(n)
  }
  await utils.release()
} else {
  if (process.env.RESCUE === 'prompt') await unlockTheDead()
  const step = async ({ n }) => {
    effect(`b ${n}`)
    await sleep(100)
    effect(`e ${n}`)
  }
  const runner = await run({ preset, taskList: { step }, parsedCronItems: [] })
  await runner.promise
}
process.exit(0)
