//! Decides which announcements may be delivered now, so that each key keeps its order and holds up only itself.
//!
//! A *sweep* reads what is undelivered from the beginning, page after page. The announcements of a page that may be
//! delivered become *lanes*, one for each key. A key that is passed over once is passed over for the rest of the sweep:
//! what is read later of it is behind what was not delivered. The next sweep finds both.
//!
//! Sweeps always begin at the beginning, because numbers are given out before their transactions end: a lower one can
//! appear after a higher one.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use stargate_directive::outbox::{Announcement, OutboxId};
use tokio::time::Instant;

use super::{PAGE, POLL};

/// Announcements of one key that are begun together. More would stay in memory while the key's server takes its time.
const LANE_MAX: usize = 20;
/// Keys that are passed over before a sweep ends. Behind so many failing keys the others wait, too.
const PASSED_MAX: usize = 10_000;

/// Announcements of one key in their order.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) key: String,
    pub(super) announcements: Vec<Announcement>,
}

/// How far the reading has come, and which keys must wait.
#[derive(Debug)]
pub(super) struct Sweep {
    position: Option<OutboxId>,
    pages: u32,
    passed: HashSet<String>,
    busy: HashSet<String>,
    paused: HashMap<String, Instant>,
    /// When the next page is to be read.
    next: Instant,
}

impl Sweep {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            position: None,
            pages: 0,
            passed: HashSet::new(),
            busy: HashSet::new(),
            paused: HashMap::new(),
            next: now,
        }
    }

    /// When the next page is to be read, and from where. The keys that are busy then must stay so until the page has
    /// been handed to [`Sweep::take`]: it may show as undelivered what has arrived meanwhile.
    pub(super) fn next(&self) -> (Instant, Option<OutboxId>) {
        (self.next, self.position)
    }

    /// Whether the next page begins a sweep.
    pub(super) fn is_at_start(&self) -> bool {
        self.position.is_none()
    }

    /// What of a page may be delivered now.
    pub(super) fn take(&mut self, page: Vec<Announcement>, now: Instant) -> Vec<Lane> {
        if self.is_at_start() {
            self.passed.clear();
            self.pages = 0;
            self.paused.retain(|_, until| *until > now);
        }
        self.pages += 1;
        let is_full = page.len() >= PAGE as usize;
        self.position = page.last().map(|last| last.id);
        let (lanes, meets_busy) = self.lanes(page, now);
        self.next = if !is_full || self.passed.len() >= PASSED_MAX {
            self.position = None;
            // The more is passed over in vain, the more seldom.
            now + POLL * self.pages
        } else if lanes.is_empty() && meets_busy {
            // Its keys will be free soon, most likely.
            now + POLL
        } else {
            now
        };
        lanes
    }

    fn lanes(&mut self, page: Vec<Announcement>, now: Instant) -> (Vec<Lane>, bool) {
        let mut lanes: Vec<Lane> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        let mut meets_busy = false;
        for announcement in page {
            let key = &announcement.key;
            if self.passed.contains(key) {
                meets_busy |= self.busy.contains(key);
                continue;
            }
            if let Some(place) = places.get(key) {
                let lane = &mut lanes[*place].announcements;
                if lane.len() < LANE_MAX {
                    lane.push(announcement);
                } else {
                    self.passed.insert(announcement.key);
                }
                continue;
            }
            let is_busy = self.busy.contains(key);
            if is_busy || self.paused.get(key).is_some_and(|until| *until > now) {
                meets_busy |= is_busy;
                self.passed.insert(announcement.key);
                continue;
            }
            places.insert(key.clone(), lanes.len());
            lanes.push(Lane { key: key.clone(), announcements: vec![announcement] });
        }
        self.busy.extend(lanes.iter().map(|lane| lane.key.clone()));
        (lanes, meets_busy)
    }

    /// All of a lane has arrived, or the rest of it was given up.
    pub(super) fn ended(&mut self, key: &str, now: Instant) {
        self.busy.remove(key);
        self.paused.remove(key);
        if self.passed.contains(key) {
            self.restart(now);
        }
    }

    /// A delivery of a lane failed, and the rest of it was not tried.
    pub(super) fn failed(&mut self, key: String, until: Instant) {
        self.busy.remove(&key);
        self.passed.insert(key.clone());
        self.paused.insert(key, until);
    }

    /// No page could be read.
    pub(super) fn unread(&mut self, now: Instant, delay: Duration) {
        self.restart(now + delay);
    }

    fn restart(&mut self, at: Instant) {
        self.position = None;
        self.next = at;
    }
}

#[cfg(test)]
mod tests;
