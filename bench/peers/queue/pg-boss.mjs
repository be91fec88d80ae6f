// pg-boss. By default a worker looks every two seconds for one job.
import { PgBoss } from 'pg-boss'
import { operation, run, settings, start, url } from './kit.mjs'

const best = settings === 'best'
const options = { connectionString: url }
// A producer needs no loops of its own, and only a worker listens.
if (operation === 'insert' || operation === 'produce') Object.assign(options, { supervise: false, schedule: false })
else if (best) Object.assign(options, { useListenNotify: true })
const boss = new PgBoss(options)
boss.on('error', error => console.error('error', error.message))
await boss.start()

// Large batches, fetched without a pause while they come full; notifications for single jobs.
const work = best ? { batchSize: 500, burstWhenBatchFull: true, localConcurrency: 2 } : {}

await run({
  setup: () => boss.createQueue('noop', best ? { notify: true, partition: true } : {}),
  one: data => boss.send('noop', data),
  many: all => boss.insert('noop', all.map(data => ({ data }))),
  work: () => boss.work('noop', work, async jobs => {
    for (const { data } of jobs) start(data.id)
  })
})
