// graphile-worker with its default settings, four jobs at once: setup, enqueue N, work.
import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { makeWorkerUtils, run, runMigrations } from 'graphile-worker'

const [operation, count] = process.argv.slice(2)
const preset = { worker: { connectionString: process.env.DATABASE_URL, concurrentJobs: 4 } }
const effect = line => appendFileSync(process.env.EFFECTS, line + '\n')

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
  const step = async ({ n }) => {
    effect(`b ${n}`)
    await sleep(100)
    effect(`e ${n}`)
  }
  const runner = await run({ preset, taskList: { step }, parsedCronItems: [] })
  await runner.promise
}
process.exit(0)
