//! `stargate workers`: the worker processes the store knows.

use comfy_table::{Cell, Color};
use serde::Serialize;

use crate::failure::Result;
use crate::output;
use crate::run::App;

#[derive(Serialize)]
struct WorkerView<'a> {
    name: &'a str,
    alive: bool,
    kinds: &'a [String],
    queues: &'a [String],
    concurrency: usize,
    holding: u64,
    started_at: jiff::Timestamp,
    beat_at: jiff::Timestamp,
}

/// Runs the command.
pub(crate) async fn run(app: &App) -> Result<()> {
    let store = app.jobs().await?;
    let workers = store.workers().await?;
    if app.out.json {
        let views = workers.iter().map(|worker| WorkerView {
            name: &worker.name,
            alive: worker.alive,
            kinds: &worker.kinds,
            queues: &worker.queues,
            concurrency: worker.concurrency,
            holding: worker.holding,
            started_at: worker.started_at,
            beat_at: worker.beat_at,
        });
        app.out.json(&views.collect::<Vec<_>>());
        return Ok(());
    }
    let now = store.now().await?;
    let mut table = output::table(&["worker", "", "jobs", "of", "queues", "started", "last beat"]);
    for worker in &workers {
        let (word, colour) = if worker.alive { ("alive", Color::Green) } else { ("silent", Color::Red) };
        table.add_row(vec![
            Cell::new(&worker.name),
            Cell::new(word).fg(colour),
            Cell::new(worker.holding),
            Cell::new(worker.concurrency),
            Cell::new(if worker.queues.is_empty() { "all".to_owned() } else { worker.queues.join(", ") }),
            Cell::new(output::when(worker.started_at, now)),
            Cell::new(output::when(worker.beat_at, now)),
        ]);
    }
    app.out.table(&table, "no workers; 'stargate up' or 'stargate worker' starts one");
    Ok(())
}
