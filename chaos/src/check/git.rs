//! Pushes: each acknowledged commit is here, recorded, and on the remote, which never went back (INV-1, INV-4).

use std::collections::{HashMap, HashSet};
use std::path::Path;

use anyhow::Result;

use super::{Figures, Violation};
use crate::evidence::Reader;
use crate::ledger::Line;
use crate::site::{BRANCHES, Site};

const ZEROS: &str = "0000000000000000000000000000000000000000";

pub(super) async fn judge(
    site: &Site,
    reader: &Reader,
    lines: &[Line],
    found: &mut Vec<Violation>,
    figures: &mut Figures,
) -> Result<()> {
    let (here, remote) = (site.home.join("repos/r.git"), site.outside("remote.git"));
    for branch in BRANCHES {
        let recorded = recorded(reader, branch).await?;
        let pushed: Vec<&str> = lines
            .iter()
            .filter_map(|line| match line {
                Line::Push { branch: of, oid, .. } if of == branch => Some(oid.as_str()),
                _ => None,
            })
            .collect();
        figures.pushes += pushed.len();
        let [held, mirrored] = [&here, &remote].map(|repo| history(site, repo, branch));
        let known = recorded.iter().flat_map(|oid| ancestors(site, &here, oid)).collect::<HashSet<String>>();
        for oid in pushed {
            if !held.contains(oid) {
                figures.lost += 1;
                found.push(Violation::new(
                    1,
                    format!("{oid} was pushed to {branch} and acknowledged, and is gone"),
                ));
            } else if !mirrored.contains(oid) {
                found.push(Violation::new(1, format!("{oid} of {branch} is not on the remote")));
            } else if !known.contains(oid) {
                found.push(Violation::new(1, format!("no recorded push accounts for {oid} of {branch}")));
            }
        }
    }
    let log = std::fs::read_to_string(site.outside("moves.log")).unwrap_or_default();
    let is_ancestor =
        |old: &str, new: &str| site.git(&remote, &["merge-base", "--is-ancestor", old, new]).is_ok();
    figures.moves = moves(&log, is_ancestor, found);
    Ok(())
}

/// The commits that recorded pushes have led to.
pub(crate) async fn recorded(reader: &Reader, branch: &str) -> Result<Vec<String>> {
    let query = format!("select new_oid from @push_event where ref_name = 'refs/heads/{branch}' and is_head");
    Ok(reader.rows(&query).await?.into_iter().flatten().flatten().collect())
}

fn history(site: &Site, repo: &Path, branch: &str) -> HashSet<String> {
    ancestors(site, repo, &format!("refs/heads/{branch}")).into_iter().collect()
}

fn ancestors(site: &Site, repo: &Path, name: &str) -> Vec<String> {
    let list = site.git(repo, &["rev-list", name]).unwrap_or_default();
    list.lines().map(str::to_owned).collect()
}

/// Every move of a ref that the remote wrote down went forward; how many there were.
fn moves(log: &str, is_ancestor: impl Fn(&str, &str) -> bool, found: &mut Vec<Violation>) -> usize {
    let mut at: HashMap<&str, &str> = HashMap::new();
    let mut count = 0;
    for line in log.lines() {
        let [_, new, name] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        if !name.starts_with("refs/heads/") {
            continue;
        }
        count += 1;
        let before = at.insert(name, new).unwrap_or(ZEROS);
        let forward = before == ZEROS || before == new || is_ancestor(before, new);
        if new == ZEROS || !forward {
            found.push(Violation::new(4, format!("the remote's {name} went from {before} to {new}")));
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ref_that_went_back_or_away_is_found() {
        let judged = |moves_of: &[&str]| {
            let log: String = moves_of.iter().map(|new| format!("{ZEROS} {new} refs/heads/left\n")).collect();
            let mut found = Vec::new();
            // Commits are numbers here, and come from those before them.
            let count = moves(&log, |old, new| old < new, &mut found);
            (count, found.len())
        };
        assert_eq!(judged(&["1", "2", "2", "4"]), (4, 0));
        assert_eq!(judged(&["1", "3", "2"]), (3, 1));
        assert_eq!(judged(&["1", ZEROS]), (2, 1));
        let mut found = Vec::new();
        assert_eq!(moves("0 9 refs/stargate/x\n0 1 refs/stargate/x\n", |_, _| false, &mut found), 0);
        assert_eq!(found, []);
    }
}
