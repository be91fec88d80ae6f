//! Very many jobs, half of them waiting and half of them ended within the last hour, one of twenty badly; and more of
//! what a node leaves behind: runs of a directive, pushes, audited actions.

use std::path::Path;

use anyhow::Result;

use crate::raw;

/// Runs of the directive and pushes to the repository.
const RUNS: i64 = 10_000;
const AUDITED: i64 = 100_000;

/// Something to look at.
pub(super) struct Filled {
    pub(super) queued: i64,
    pub(super) done: i64,
    pub(super) failed: i64,
    pub(super) run: String,
}

impl Filled {
    fn new(first: i64, half: i64, run: String) -> Self {
        let failed = first + half + half / 20 * 20;
        Self { queued: first + half / 2, done: failed - 1, failed, run }
    }
}

/// Puts numbers into a script.
fn script(text: &str, values: &[(&str, i64)]) -> String {
    values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, &value.to_string()))
}

const SQLITE: &str = "
    with recursive n (n) as (select 0 union all select n + 1 from n where n < 4)
    insert into kind (name, max_attempts, max_crashes) select 'k' || n, 5, 3 from n;
    with recursive n (n) as (select 0 union all select n + 1 from n where n < 49)
    insert into lane (id, queue, kind, limit_key, ready, failed)
    select :lane + n + 1, 'q' || (n % 10), 'k' || (n % 5), 'tenant ' || n, :half / 50, :half / 1000 from n;
    with recursive n (n) as (select 1 union all select n + 1 from n where n < :half)
    insert into job (id, lane_id, stage, priority, max_attempts, run_at, created_at, payload)
    select :job + n, :lane + 1 + n % 50, 0, 0, 5, :now, :now - 3500000000 - (:half - n) * :step,
           '{\"id\":' || n || ',\"name\":\"Customer ' || n || '\"}' from n;
    with recursive n (n) as (select 1 union all select n + 1 from n where n < :half)
    insert into job_history (id, lane_id, state, priority, attempt, max_attempts, crash_count, progress, last_seq, started_seq,
                             run_at, created_at, started_at, finished_at, payload, error)
    select :job + :half + n, :lane + 1 + (n / 20) % 50, case when n % 20 = 0 then 3 else 2 end, 0, 1, 5, 0, 0, 3, 2,
           :now - (:half - n) * :step, :now - (:half - n) * :step, :now - (:half - n) * :step + n % 997 * 1000,
           :now - (:half - n) * :step, '{\"id\":' || n || ',\"name\":\"Customer ' || n || '\"}',
           case when n % 20 = 0 then '{\"code\":\"CODE_' || (n % 7) || '\",\"class\":\"Fatal\",\"message\":\"it broke\"}' end from n;
    update counter set value = :job + :half * 2 where name = 'job_id';
    with recursive n (n) as (select 1 union all select n + 1 from n where n < :runs)
    insert into directive_run (id, directive, tenant_id, project_id, engine, workflow_id, worker, lease_key, outcome, pages,
                               created, updated, unchanged, failed, cursor, beat, source_ended, started_at, updated_at, ended_at)
    select r.id || '-' || n, directive, tenant_id, project_id, engine, workflow_id, worker, lease_key, outcome, pages, created,
           updated, unchanged, failed, cursor, beat, source_ended, started_at - n * 60000000, updated_at - n * 60000000,
           ended_at - n * 60000000
      from n cross join (select * from directive_run limit 1) r;
    with recursive n (n) as (select 1 union all select n + 1 from n where n < :runs)
    insert into push_event (repo_id, ref_name, old_oid, new_oid, request_id, pusher, epoch, received_at, created_at, processed_at)
    select repo_id, ref_name, old_oid, new_oid, request_id || '-' || n, pusher, epoch, received_at, created_at, :now
      from n cross join (select * from push_event limit 1) e;
    with recursive n (n) as (select 1 union all select n + 1 from n where n < :audited)
    insert into stargate_audit (at, actor, role, action, target, detail, source, finished_at, outcome)
    select :now - (:audited - n) * 1000000, 'somebody', 'admin', 'job.retry', n, '{}', 'api', :now - (:audited - n) * 1000000, 'ok'
      from n;
    analyze;";

/// Fills the file; nobody else may have it open.
pub(super) fn sqlite(file: &Path, jobs: i64) -> Result<Filled> {
    let file = rusqlite::Connection::open(file)?;
    let number = |sql: &str| file.query_row(sql, [], |row| row.get::<_, i64>(0));
    let lane = number("select coalesce(max(id), 0) from lane")?;
    let job = number("select value from counter where name = 'job_id'")?;
    let run = file.query_row("select id from directive_run limit 1", [], |row| row.get(0))?;
    let half = jobs / 2;
    let values = [
        (":half", half),
        (":lane", lane),
        (":job", job),
        (":now", stargate_base::clock::wall().as_microsecond()),
        (":step", 3_500_000_000 / half),
        (":runs", RUNS),
        (":audited", AUDITED),
    ];
    file.execute_batch(&format!(
        "begin; {} commit; pragma wal_checkpoint(truncate);",
        script(SQLITE, &values)
    ))?;
    Ok(Filled::new(job, half, run))
}

const POSTGRES: &str = "
    insert into stargate.kind (name, max_attempts, max_crashes) select 'k' || n, 5, 3 from generate_series(0, 4) n;
    insert into stargate.lane (id, queue, kind, limit_key) overriding system value
    select :lane + n + 1, 'q' || n % 10, 'k' || n % 5, 'tenant ' || n from generate_series(0, 49) n;
    select setval(pg_get_serial_sequence('stargate.lane', 'id'), :lane + 50);
    insert into stargate.job (id, lane_id, stage, max_attempts, run_at, created_at, payload) overriding system value
    select :job + n, :lane + 1 + n % 50, 0, 5, now(),
           now() - interval '3500 seconds' - (:half - n) * :step::bigint * interval '1 microsecond',
           json_build_object('id', n, 'name', 'Customer ' || n) from generate_series(1, :half) n;
    insert into stargate.job_history (id, run_at, created_at, started_at, finished_at, lane_id, last_seq, started_seq, state,
           priority, attempt, max_attempts, crash_count, progress, cancel_requested, payload, error)
    select :job + :half + n, t, t, t + n % 997 * interval '1 millisecond', t, :lane + 1 + (n / 20) % 50, 3, 2,
           case when n % 20 = 0 then 3 else 2 end, 0, 1, 5, 0, 0, false, json_build_object('id', n, 'name', 'Customer ' || n),
           case when n % 20 = 0 then json_build_object('code', 'CODE_' || n % 7, 'class', 'Fatal', 'message', 'it broke') end
      from (select n, now() - (:half - n) * :step::bigint * interval '1 microsecond' as t from generate_series(1, :half) n) n;
    select setval(pg_get_serial_sequence('stargate.job', 'id'), :job + :half * 2);
    insert into stargate.directive_run (id, directive, tenant_id, project_id, engine, workflow_id, worker, lease_key, outcome,
           pages, created, updated, unchanged, failed, cursor, beat, source_ended, started_at, updated_at, ended_at)
    select r.id || '-' || n, directive, tenant_id, project_id, engine, workflow_id, worker, lease_key, outcome, pages, created,
           updated, unchanged, failed, cursor, beat, source_ended, started_at - n * interval '1 minute',
           updated_at - n * interval '1 minute', ended_at - n * interval '1 minute'
      from generate_series(1, :runs) n cross join (select * from stargate.directive_run limit 1) r;
    insert into stargate.push_event (repo_id, ref_name, old_oid, new_oid, request_id, pusher, epoch, received_at, created_at,
           processed_at)
    select repo_id, ref_name, old_oid, new_oid, request_id || '-' || n, pusher, epoch, received_at, created_at, now()
      from generate_series(1, :runs) n cross join (select * from stargate.push_event limit 1) e;
    insert into stargate.stargate_audit (at, actor, role, action, target, detail, source, finished_at, outcome)
    select now() - (:audited - n) * interval '1 second', 'somebody', 'admin', 'job.retry', n, '{}', 'api',
           now() - (:audited - n) * interval '1 second', 'ok' from generate_series(1, :audited) n;";

/// Fills the database.
pub(super) async fn postgres(url: &str, jobs: i64) -> Result<Filled> {
    let client = raw::connect(url).await?;
    let row = client
        .query_one(
            "select (select coalesce(max(id), 0) from stargate.lane)::bigint,
                    (select last_value from pg_sequences where schemaname = 'stargate' and sequencename = 'job_id_seq'),
                    (select id from stargate.directive_run limit 1)",
            &[],
        )
        .await?;
    let (lane, job): (i64, i64) = (row.get(0), row.get::<_, Option<i64>>(1).unwrap_or(0));
    let half = jobs / 2;
    let values = [
        (":half", half),
        (":lane", lane),
        (":job", job),
        (":step", 3_500_000_000 / half),
        (":runs", RUNS),
        (":audited", AUDITED),
    ];
    client.batch_execute(&script(POSTGRES, &values)).await?;
    // As the server does by itself when it finds the time.
    client.batch_execute("vacuum analyze").await?;
    Ok(Filled::new(job, half, row.get(2)))
}
