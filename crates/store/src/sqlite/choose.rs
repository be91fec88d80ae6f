//! Which jobs a claim takes: highest priority first, among equals the key with the smallest share so far, then due
//! time and id; never beyond a kind's slots, a key's concurrency or its rate.
//!
//! Lanes that are paused or not served are stepped over at the cost of one look each, however many jobs they hold.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use rusqlite::OptionalExtension as _;
use stargate_queue::store::ClaimRequest;

use super::error::Step;
use super::limit::{Key, key};
use super::session::{Lane, Session, sql};

/// What one claim at weight 1 adds to a key's share.
const STRIDE: i64 = 1_000_000;

/// What a claim takes.
pub(super) struct Chosen {
    /// Ids, each with its place in `lanes`, in the order in which they should start.
    pub(super) jobs: Vec<(i64, usize)>,
    /// The lanes that were looked at.
    pub(super) lanes: Vec<Cursor>,
    /// When a key that has jobs waiting may start the next one under its rate.
    pub(super) next_token: Option<i64>,
}

/// A lane and how far it has been read.
pub(super) struct Cursor {
    pub(super) lane: Arc<Lane>,
    /// Place of its kind in the request.
    pub(super) kind: usize,
    heads: VecDeque<Head>,
    read: u32,
    chunk: u32,
    at_end: bool,
}

/// A job in the order of its lane: priority, due time, id. The greatest is the first to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Head {
    priority: i64,
    run_at: Reverse<i64>,
    id: Reverse<i64>,
}

/// All jobs of one limit key; those without one are a group too.
struct Group {
    key: Arc<str>,
    limits: Key,
    vtime: i64,
    room: u32,
    taken: u32,
    heads: BinaryHeap<(Head, usize)>,
}

/// Chooses jobs and counts them against their keys.
pub(super) fn choose(s: &mut Session<'_>, request: &ClaimRequest) -> Step<Chosen> {
    let mut lanes = served(s, request)?;
    let chunk = (2 * request.limit / u32::try_from(lanes.len().max(1)).unwrap_or(u32::MAX)).clamp(4, 1000);
    for cursor in &mut lanes {
        cursor.chunk = chunk.min(request.limit);
    }
    let (mut groups, floor) = groups(s, &mut lanes)?;
    let mut slots: Vec<u32> = request.kinds.iter().map(|kind| kind.slots).collect();
    let mut ranks: BinaryHeap<_> = groups
        .iter()
        .enumerate()
        .filter_map(|(at, group)| group.rank().map(|rank| (rank, Reverse(at))))
        .collect();
    let mut jobs = Vec::new();
    while jobs.len() < request.limit as usize
        && let Some((_, Reverse(at))) = ranks.pop()
    {
        let group = &mut groups[at];
        let Some((head, lane)) = group.heads.pop() else { continue };
        let cursor = &mut lanes[lane];
        if slots[cursor.kind] > 0 {
            slots[cursor.kind] -= 1;
            group.take();
            jobs.push((head.id.0, lane));
            if let Some(next) = cursor.next(s)? {
                group.heads.push((next, lane));
            }
        }
        if let Some(rank) = group.rank() {
            ranks.push((rank, Reverse(at)));
        }
    }
    let next_token = groups
        .iter()
        .filter(|group| !group.heads.is_empty())
        .filter_map(|group| group.limits.next_token(s.now, group.taken));
    let next_token = next_token.min();
    settle_shares(s, &groups, floor)?;
    Ok(Chosen { jobs, lanes, next_token })
}

/// The lanes with ready jobs that this worker serves and nobody has paused.
fn served(s: &mut Session<'_>, request: &ClaimRequest) -> Step<Vec<Cursor>> {
    let kinds: HashMap<&str, usize> = request
        .kinds
        .iter()
        .enumerate()
        .filter(|(_, k)| k.slots > 0)
        .map(|(at, k)| (k.kind.as_str(), at))
        .collect();
    let queues: HashSet<&str> = request.queues.iter().map(String::as_str).collect();
    let paused = super::operate::pause_names(s.conn)?;
    let mut lanes = Vec::new();
    let mut next = s.conn.prepare_cached(sql!("lane_next_ready"))?;
    let mut last = 0_i64;
    while let Some(id) = next.query_row([last], |row| row.get(0)).optional()? {
        last = id;
        let lane = s.lane(id)?;
        let Some(kind) = kinds.get(&*lane.kind) else { continue };
        if !(queues.is_empty() || queues.contains(&*lane.queue)) || paused.hold(&lane) {
            continue;
        }
        lanes.push(Cursor { lane, kind: *kind, heads: VecDeque::new(), read: 0, chunk: 1, at_end: false });
    }
    Ok(lanes)
}

/// Puts the lanes into groups by key, each with its limits and its share; and the floor under all shares.
fn groups(s: &mut Session<'_>, lanes: &mut [Cursor]) -> Step<(Vec<Group>, i64)> {
    let mut places: HashMap<Arc<str>, usize> = HashMap::new();
    let mut groups: Vec<Group> = Vec::new();
    let keyed = lanes.iter().any(|cursor| !cursor.lane.key.is_empty());
    let floor: i64 = if keyed {
        s.conn.prepare_cached(sql!("counter_get"))?.query_row(["vtime"], |row| row.get(0))?
    } else {
        0
    };
    for (at, cursor) in lanes.iter_mut().enumerate() {
        let place = match places.get(&cursor.lane.key) {
            Some(place) => *place,
            None => {
                let limits =
                    if keyed { key(s.conn, &cursor.lane.key)?.unwrap_or_default() } else { Key::default() };
                // Who was idle starts level with those who were not: credit cannot be hoarded.
                let vtime = limits.vtime.max(floor);
                let room = limits.room(s.now);
                let name = Arc::clone(&cursor.lane.key);
                places.insert(Arc::clone(&name), groups.len());
                groups.push(Group { key: name, limits, vtime, room, taken: 0, heads: BinaryHeap::new() });
                groups.len() - 1
            }
        };
        let group = &mut groups[place];
        if let Some(head) = cursor.next(s)? {
            group.heads.push((head, at));
        }
    }
    Ok((groups, floor))
}

/// Writes what was taken from each key. Without keys there are no shares to keep.
fn settle_shares(s: &Session<'_>, groups: &[Group], floor: i64) -> Step<()> {
    if groups.iter().all(|group| group.key.is_empty()) {
        return Ok(());
    }
    let mut write = s.conn.prepare_cached(sql!("limit_key_claimed"))?;
    for group in groups.iter().filter(|group| group.taken > 0) {
        let tokens = group.limits.tokens(s.now) - f64::from(group.taken);
        let running = if group.key.is_empty() { 0 } else { group.taken };
        if write.execute((&*group.key, running, tokens.max(0.0), s.now, group.vtime))? == 0 {
            s.conn.prepare_cached(sql!("limit_key_ensure"))?.execute((
                &*group.key,
                None::<i64>,
                None::<i64>,
                None::<i64>,
                1,
                s.now,
            ))?;
            write.execute((&*group.key, running, 0.0, s.now, group.vtime))?;
        }
    }
    let waiting = groups.iter().filter(|group| group.rank().is_some()).map(|group| group.vtime).min();
    let served = groups.iter().filter(|group| group.taken > 0).map(|group| group.vtime).max();
    if let Some(level) = waiting.or(served).filter(|level| *level > floor) {
        s.conn.prepare_cached(sql!("counter_raise"))?.execute(("vtime", level))?;
    }
    Ok(())
}

impl Group {
    /// The group's place among the others; nothing when it has no job or no room.
    fn rank(&self) -> Option<(i64, Reverse<i64>, Head)> {
        let (head, _) = self.heads.peek().filter(|_| self.room > 0)?;
        Some((head.priority, Reverse(self.vtime), *head))
    }

    fn take(&mut self) {
        self.room -= 1;
        self.taken += 1;
        self.vtime += STRIDE / self.limits.weight.max(1);
    }
}

impl Cursor {
    /// The next job of the lane.
    fn next(&mut self, s: &Session<'_>) -> Step<Option<Head>> {
        if self.heads.is_empty() && !self.at_end {
            let mut list = s.conn.prepare_cached(sql!("lane_ready_heads"))?;
            let rows = list.query_map((self.lane.id, self.chunk, self.read), |row| {
                Ok(Head { priority: row.get(0)?, run_at: Reverse(row.get(1)?), id: Reverse(row.get(2)?) })
            })?;
            self.heads = rows.collect::<Result<_, _>>()?;
            let found = u32::try_from(self.heads.len()).unwrap_or(u32::MAX);
            self.read += found;
            self.at_end = found < self.chunk;
            self.chunk = self.chunk.saturating_mul(2).min(1000);
        }
        Ok(self.heads.pop_front())
    }
}
