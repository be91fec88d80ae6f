//! The mirror's own records: each entry of its journal has come to one end, and what was given up has a letter (INV-1).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::Violation;
use crate::site::Site;

/// Entries that have not come to an end.
pub(crate) fn pending(site: &Site) -> Vec<String> {
    Records::of(site).pending()
}

/// How many entries there are; what is wrong with their ends.
pub(super) fn judge(site: &Site, found: &mut Vec<Violation>) -> usize {
    let records = Records::of(site);
    found.extend(records.wrong().into_iter().map(|what| Violation::new(1, what)));
    records.entries.len()
}

#[derive(Debug, Default)]
struct Records {
    entries: BTreeSet<String>,
    /// What each of them came to, as often as that was recorded.
    ends: BTreeMap<String, Vec<String>>,
    /// Those that have a letter.
    letters: BTreeSet<String>,
}

impl Records {
    fn of(site: &Site) -> Self {
        let folder = site.home.join("repos/r.git/.stargate");
        let text = |name: &str| read(&folder.join(name));
        Self::read(
            &text("mirror-journal.ndjson"),
            &text("mirror-status.ndjson"),
            &text("mirror-dead-letter.ndjson"),
        )
    }

    fn read(journal: &str, statuses: &str, letters: &str) -> Self {
        let mut ends: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for record in lines(statuses) {
            if let (Some(id), Some(status)) = (id(&record), record["status"].as_str()) {
                ends.entry(id).or_default().push(status.to_owned());
            }
        }
        let ids = |text: &str| lines(text).filter_map(|line| id(&line)).collect();
        Self { entries: ids(journal), ends, letters: ids(letters) }
    }

    fn pending(&self) -> Vec<String> {
        let open = self.entries.iter().filter(|entry| !self.ends.contains_key(*entry));
        open.map(|entry| format!("entry {entry} of the mirror has come to no end")).collect()
    }

    fn wrong(&self) -> Vec<String> {
        let mut wrong = self.pending();
        for (entry, ends) in &self.ends {
            match ends.as_slice() {
                [end] if end == "dead-letter" && !self.letters.contains(entry) => {
                    wrong.push(format!("entry {entry} of the mirror was given up without a letter"));
                }
                [_] => {}
                several => wrong.push(format!("entry {entry} of the mirror has the ends {several:?}")),
            }
        }
        wrong
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// Whole lines; what has no end yet was never written. A line that a full disk has torn is none.
fn lines(text: &str) -> impl Iterator<Item = Value> {
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.filter_map(|line| serde_json::from_str(line).ok())
}

fn id(line: &Value) -> Option<String> {
    line["entry_id"].as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_without_an_end_or_with_two_and_letters_that_are_missing_are_found() {
        let journal =
            "{\"entry_id\":\"a\"}\n{\"entry_id\":\"b\"}\n{\"entry_id\":\"c\"}\n{\"entry_id\":\"torn";
        let end = |id: &str, status: &str| format!("{{\"entry_id\":\"{id}\",\"status\":\"{status}\"}}\n");
        let letter = "{\"entry_id\":\"c\",\"state\":\"open\"}\n";
        let wrong = |statuses: &str, letters: &str| Records::read(journal, statuses, letters).wrong();
        let well = [end("a", "completed"), end("b", "superseded"), end("c", "dead-letter")].concat();
        assert_eq!(wrong(&well, letter), [""; 0]);
        assert_eq!(wrong(&well, ""), ["entry c of the mirror was given up without a letter"]);
        let short = [end("a", "completed"), end("c", "dead-letter")].concat();
        assert_eq!(wrong(&short, letter), ["entry b of the mirror has come to no end"]);
        let twice = well + &end("a", "completed");
        assert_eq!(
            wrong(&twice, letter),
            ["entry a of the mirror has the ends [\"completed\", \"completed\"]"]
        );
    }
}
