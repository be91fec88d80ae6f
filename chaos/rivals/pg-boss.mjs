// pg-boss with its default settings, four jobs at once, a look every half second: setup, enqueue N, work.
import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { PgBoss } from 'pg-boss'

const [operation, count] = process.argv.slice(2)
const boss = new PgBoss({ connectionString: process.env.DATABASE_URL })
boss.on('error', error => console.error('error', error.message))
const effect = line => appendFileSync(process.env.EFFECTS, line + '\n')
await boss.start()

if (operation === 'setup') {
  await boss.createQueue('step')
} else if (operation === 'enqueue') {
  for (let n = 0; n < Number(count); n++) {
    await boss.send('step', { n })
    console.log(n)
  }
} else {
  await boss.work('step', { localConcurrency: 4, pollingIntervalSeconds: 0.5 }, async ([{ data: { n } }]) => {
    effect(`b ${n}`)
    await sleep(100)
    effect(`e ${n}`)
  })
  await new Promise(() => setInterval(() => {}, 1000))
}
await boss.stop({ graceful: false, close: true }).catch(() => {})
process.exit(0)
