//! Delivers to a file: a page of announcements, one write, one sync, and then they are noted.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;
use stargate_directive::outbox::{Announcement, OutboxId};
use tokio::task::JoinSet;

use super::file::LineFile;
use super::{AGAIN, PAGE, POLL, STORE_AGAIN, Shift};

/// A line of the file.
#[derive(Serialize)]
struct Line<'a> {
    id: OutboxId,
    topic: &'a str,
    key: &'a str,
    payload: &'a RawValue,
    created_at: jiff::Timestamp,
}

/// What a look at the outbox came to.
enum Round {
    /// A full page is written: there is more.
    More,
    /// Everything is written.
    Through,
    /// The file took nothing; so often in a row now, this one included.
    Unwritten(u32),
    /// The store did not answer.
    Unread,
}

/// Delivers until it is told to stop.
pub(super) async fn run(shift: &Shift, file: &LineFile, notes: &mut JoinSet<()>) {
    let (mut unread, mut counted) = (0, None);
    while shift.goes_on() {
        shift.count_waiting(&mut counted).await;
        let round = run_once(shift, file, notes).await;
        unread = if matches!(round, Round::Unread) { unread + 1 } else { 0 };
        let wait = match round {
            Round::More => continue,
            Round::Through => POLL,
            Round::Unwritten(failures) => AGAIN.delay(failures),
            Round::Unread => STORE_AGAIN.delay(unread),
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shift.stop.cancelled() => {}
        }
    }
}

async fn run_once(shift: &Shift, file: &LineFile, notes: &mut JoinSet<()>) -> Round {
    let page = match shift.next(None).await {
        Ok(page) => page,
        Err(error) => {
            tracing::warn!(topic = shift.office.topic, %error, "cannot read announcements; trying again");
            return Round::Unread;
        }
    };
    let Some(first) = page.first().filter(|_| shift.held.is_good()) else { return Round::Through };
    let (file, lines) = (file.clone(), lines(&page));
    let written = tokio::task::spawn_blocking(move || file.append(&lines)).await;
    let problem = match written {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(error) => Some(format!("writing broke down: {error}")),
    };
    if let Some(problem) = problem {
        shift.note_failed(first, &problem).await;
        return Round::Unwritten(first.attempts.saturating_add(1));
    }
    note(shift, &page, notes).await;
    if page.len() < PAGE as usize { Round::Through } else { Round::More }
}

/// Notes what has arrived: of each key in its order, so that a crash leaves the later ones to be repeated, never an
/// earlier one alone.
async fn note(shift: &Shift, page: &[Announcement], notes: &mut JoinSet<()>) {
    let mut keys: BTreeMap<&str, Vec<OutboxId>> = BTreeMap::new();
    for announcement in page {
        keys.entry(&announcement.key).or_default().push(announcement.id);
    }
    for ids in keys.into_values() {
        let shift = shift.clone();
        notes.spawn(async move {
            for id in ids {
                if !shift.note_done(id).await {
                    break;
                }
            }
        });
    }
    while notes.join_next().await.is_some() {}
}

fn lines(page: &[Announcement]) -> Vec<u8> {
    let mut lines = Vec::new();
    for Announcement { id, topic, key, payload, created_at, .. } in page {
        let line = Line { id: *id, topic, key, payload, created_at: *created_at };
        let line = serde_json::to_string(&line).expect("text, numbers and JSON can be written as JSON");
        // JSON may be written over several lines; what looks like a line end inside of a text is escaped there.
        lines.extend(line.bytes().map(|byte| if byte == b'\n' || byte == b'\r' { b' ' } else { byte }));
        lines.push(b'\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_announcement_is_one_line() {
        let payload = RawValue::from_string("{\n \"body\": \"a\\nb\"\r\n}".to_owned()).unwrap();
        let announcement = Announcement {
            id: OutboxId(7),
            topic: "t".into(),
            key: "k\n".into(),
            payload,
            created_at: "2026-11-16T12:00:00Z".parse().unwrap(),
            attempts: 0,
        };
        let text = String::from_utf8(lines(&[announcement.clone(), announcement])).unwrap();
        assert_eq!(text.lines().count(), 2);
        let line = text.lines().next().unwrap();
        let expected = serde_json::json!({
            "id": 7, "topic": "t", "key": "k\n", "payload": {"body": "a\nb"}, "created_at": "2026-11-16T12:00:00Z"
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(line).unwrap(), expected);
    }
}
