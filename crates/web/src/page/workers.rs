//! Workers: who is alive, what they serve, how full they are.

use askama::Template;

use super::frame::{Frame, Shown, Visit, ask};
use super::html;
use crate::api::types::{Worker, Workers};

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    workers: Vec<Worker>,
    alive: usize,
    slots: usize,
    holding: u64,
}

/// `GET /workers`
pub(crate) async fn show(visit: Visit) -> Shown {
    let mut workers = ask!(visit, visit.api.get::<Workers>("/workers").await).workers;
    // Those that make trouble first.
    workers.sort_by_key(|worker| (worker.alive, std::cmp::Reverse(worker.holding)));
    let alive: Vec<&Worker> = workers.iter().filter(|worker| worker.alive).collect();
    let page = WorkersPage {
        alive: alive.len(),
        slots: alive.iter().map(|worker| worker.concurrency).sum(),
        holding: alive.iter().map(|worker| worker.holding).sum(),
        frame: visit.frame("Workers", "/workers"),
        workers,
    };
    visit.show(&page)
}
