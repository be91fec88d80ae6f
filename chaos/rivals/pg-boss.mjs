// pg-boss, four jobs at once: setup, enqueue N, work.
//
// By default a job whose worker died is failed, and tried again, when it has been active for 15 minutes. With
// RESCUE=prompt jobs have heartbeats, with the shortest interval that is allowed, and are looked after every second.
import { appendFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { PgBoss } from 'pg-boss'

const [operation, count] = process.argv.slice(2)
const prompt = process.env.RESCUE === 'prompt'
const boss = new PgBoss({
  connectionString: process.env.DATABASE_URL,
  ...(prompt && { superviseIntervalSeconds: 1, monitorIntervalSeconds: 1 })
})
boss.on('error', error => console.error('error', error.message))
const effect = line => appendFileSync(process.env.EFFECTS, line + '\n')
await boss.start()

if (operation === 'setup') {
  await boss.createQueue('step', prompt ? { heartbeatSeconds: 10 } : {})
} else if (operation === 'enqueue') {
  for (let n = 0; n < Number(count); n++) {
    await boss.send('step', { n })
    console.log(n)
  }
} else {
  // By default a worker looks every two seconds for one job, and what would be measured is that.
  const options = { localConcurrency: 4, pollingIntervalSeconds: 0.5, burstWhenBatchFull: true }
  await boss.work('step', options, async ([{ data: { n } }]) => {
    effect(`b ${n}`)
    await sleep(100)
    effect(`e ${n}`)
  })
  await new Promise(() => setInterval(() => {}, 1000))
}
await boss.stop({ graceful: false, close: true }).catch(() => {})
process.exit(0)
