//! Pushes: each acknowledged commit is here, recorded, and on the remote, which never went back (INV-1, INV-4).

use std::collections::HashSet;
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
                Line::Push { branch: of, oid } if of == branch => Some(oid.as_str()),
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
    moves(site, &remote, found, figures)
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

/// Every move of a ref that the remote wrote down went forward.
fn moves(site: &Site, remote: &Path, found: &mut Vec<Violation>, figures: &mut Figures) -> Result<()> {
    let log = std::fs::read_to_string(site.outside("moves.log")).unwrap_or_default();
    let mut at: std::collections::HashMap<&str, &str> = std::collections::HashMap::new();
    for line in log.lines() {
        let [_, new, name] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        if !name.starts_with("refs/heads/") {
            continue;
        }
        figures.moves += 1;
        let before = at.insert(name, new).unwrap_or(ZEROS);
        let forward = before == ZEROS
            || before == new
            || site.git(remote, &["merge-base", "--is-ancestor", before, new]).is_ok();
        if new == ZEROS || !forward {
            found.push(Violation::new(4, format!("the remote's {name} went from {before} to {new}")));
        }
    }
    Ok(())
}
