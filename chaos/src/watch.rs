//! What is looked at all the time: who says that it leads, where the cursor is, what processes take and show.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;
use stargate_testkit::process::get;
use tokio::task::JoinSet;

use crate::check::{Look, Passes, Violation};
use crate::evidence::Row;
use crate::site::Site;

/// A node said that it led: at some instant between these two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sighting {
    /// Its instance name.
    pub(crate) node: String,
    /// The epoch it named.
    pub(crate) epoch: u64,
    /// Before the question was sent.
    pub(crate) sent: Instant,
    /// After the answer was there.
    pub(crate) answered: Instant,
}

/// All that was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Who led.
    pub(crate) sightings: Vec<Sighting>,
    /// Questions to nodes, answered or not.
    pub(crate) looks: u64,
    /// Looks at the cursor and the rows together.
    pub(crate) cursors: u64,
    /// Of these, in the middle of a pass.
    pub(crate) pointers: u64,
    /// Answers of nodes that were searched for secrets.
    pub(crate) answers: u64,
    /// When each worker was seen to have beaten, in microseconds by the store's clock.
    pub(crate) beats: HashMap<String, BTreeSet<i64>>,
    /// The most memory that one of our processes had, in KiB.
    pub(crate) memory_max: u64,
    /// The most files that one of them had open.
    pub(crate) files_max: u64,
    /// What must not be.
    pub(crate) violations: Vec<Violation>,
}

impl Seen {
    fn note(&mut self, sizes: &[(u64, u64)], shown: Vec<String>) {
        for (memory, files) in sizes {
            self.memory_max = self.memory_max.max(*memory);
            self.files_max = self.files_max.max(*files);
        }
        self.violations.extend(shown.into_iter().map(|what| Violation::new(8, what)));
    }
}

/// The watch; ends when told.
#[derive(Debug)]
pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    tasks: JoinSet<()>,
}

impl Watch {
    /// Begins.
    pub(crate) fn start(site: &Arc<Site>) -> Self {
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Seen::default())));
        let mut tasks = JoinSet::new();
        tasks.spawn(leaders(Arc::clone(site), Arc::clone(&stop), Arc::clone(&seen)));
        tasks.spawn(cursors(Arc::clone(site), Arc::clone(&stop), Arc::clone(&seen)));
        tasks.spawn(processes(Arc::clone(site), Arc::clone(&stop), Arc::clone(&seen)));
        tasks.spawn(answers(Arc::clone(site), Arc::clone(&stop), Arc::clone(&seen)));
        Self { stop, seen, tasks }
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        while self.tasks.join_next().await.is_some() {}
        std::mem::take(&mut *lock(&self.seen))
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks every node all the time, one question each at once: a node that stands still must not hide the other.
async fn leaders(site: Arc<Site>, stop: Arc<AtomicBool>, seen: Arc<Mutex<Seen>>) {
    let mut asking: HashMap<String, tokio::task::AbortHandle> = HashMap::new();
    let mut questions = JoinSet::new();
    while !stop.load(Ordering::Relaxed) {
        let nodes = site.crew().nodes();
        asking.retain(|_, question| !question.is_finished());
        for node in nodes {
            if asking.contains_key(&node.instance) {
                continue;
            }
            let seen = Arc::clone(&seen);
            let name = node.instance.clone();
            let question = questions.spawn(async move {
                let sent = Instant::now();
                let answer = get(&node.address, "/healthz").await;
                let answered = Instant::now();
                let mut seen = lock(&seen);
                seen.looks += 1;
                let Some(body) = answer.ok().and_then(|(_, body)| serde_json::from_str::<Value>(&body).ok())
                else {
                    return;
                };
                if let (Some("leader"), Some(epoch)) = (body["role"].as_str(), body["epoch"].as_u64()) {
                    seen.sightings.push(Sighting { node: node.instance, epoch, sent, answered });
                }
            });
            asking.insert(name, question);
        }
        while questions.try_join_next().is_some() {}
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    questions.shutdown().await;
}

/// In one statement: the cursor, and the rows before it.
const BEFORE_CURSOR: &str = "select N, i.number, i.edition from @kv k left join items i on N is null or i.number <= N where k.key like '%/cursor'";

const BEATS: &str = "select name, µ(beat_at) from @worker where gone_at is null";

async fn cursors(site: Arc<Site>, stop: Arc<AtomicBool>, seen: Arc<Mutex<Seen>>) {
    let reader = site.reader();
    // The last item before the cursor; nothing where a pass is over. Both stores can take it out, each in its own words.
    let pointer = match site.servers {
        None => "cast(json_extract(k.value, '$.source_pointer.next') as integer)",
        Some(_) => "(k.value->'source_pointer'->>'next')::bigint",
    };
    let query = BEFORE_CURSOR.replace('N', pointer);
    let mut passes = Passes::default();
    while !stop.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let rows = tokio::time::timeout(Duration::from_secs(5), reader.rows(&query)).await;
        if let Ok(Ok(rows)) = rows {
            let look = look(sent, &rows);
            let wrong = {
                let changes = site.changes.lock().unwrap_or_else(PoisonError::into_inner);
                look.as_ref().and_then(|look| passes.judge(look, &changes))
            };
            let mut seen = lock(&seen);
            seen.pointers += u64::from(look.is_some_and(|look| look.pointer.is_some()));
            seen.cursors += u64::from(!rows.is_empty());
            seen.violations.extend(wrong.map(|what| Violation::new(5, what)));
        }
        let beats = tokio::time::timeout(Duration::from_secs(5), reader.rows(BEATS)).await;
        if let Ok(Ok(rows)) = beats {
            let mut seen = lock(&seen);
            for row in rows {
                if let [Some(name), Some(at)] = row.as_slice() {
                    seen.beats.entry(name.clone()).or_default().extend(at.parse::<i64>());
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What the rows of [`BEFORE_CURSOR`] say; nothing where there is no cursor yet.
fn look(sent: Instant, rows: &[Row]) -> Option<Look> {
    let number = |row: &Row, at: usize| row.get(at).and_then(Option::as_deref)?.parse::<i64>().ok();
    let pointer = number(rows.first()?, 0);
    let rows = rows.iter().filter_map(|row| Some((number(row, 1)?, number(row, 2)?))).collect();
    Some(Look { sent, pointer, rows })
}

async fn processes(site: Arc<Site>, stop: Arc<AtomicBool>, seen: Arc<Mutex<Seen>>) {
    while !stop.load(Ordering::Relaxed) {
        let ids = site.crew().ids();
        let sizes: Vec<(u64, u64)> = ids.iter().filter_map(|id| size(*id).ok()).collect();
        let shown = site.secrets.found_in_arguments();
        lock(&seen).note(&sizes, shown);
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
}

/// What an administrator is shown, who may see the most.
const SHOWN: [&str; 9] = [
    "/metrics",
    "/",
    "/jobs",
    "/api/v1/jobs?limit=50",
    "/leadership",
    "/mirror/r",
    "/directives/issues",
    "/workers",
    "/audit",
];

/// Reads what nodes answer, whatever the trouble, for words that must not be there.
async fn answers(site: Arc<Site>, stop: Arc<AtomicBool>, seen: Arc<Mutex<Seen>>) {
    let Ok(client) = reqwest::Client::builder().timeout(Duration::from_secs(3)).build() else { return };
    let mut paths = SHOWN.iter().cycle();
    while !stop.load(Ordering::Relaxed) {
        let (nodes, path) = (site.crew().nodes(), paths.next().copied().unwrap_or("/"));
        for node in nodes {
            let request =
                client.get(format!("http://{}{path}", node.address)).bearer_auth(&site.secrets.token);
            let Ok(answer) = request.send().await else { continue };
            let body = answer.text().await.unwrap_or_default();
            let shown = site.secrets.found_in(&body).into_iter().map(|what| format!("{what} at {path}"));
            let mut seen = lock(&seen);
            seen.answers += 1;
            seen.violations.extend(shown.map(|what| Violation::new(8, what)));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Memory in KiB and open files of a process.
pub(crate) fn size(id: u32) -> Result<(u64, u64)> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let memory = memory.and_then(|text| text.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0);
    Ok((memory, std::fs::read_dir(format!("/proc/{id}/fd"))?.count() as u64))
}
