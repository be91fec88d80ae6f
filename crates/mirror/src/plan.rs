//! What to push next: one entry, the entries of a transaction, or a stretch of entries at once. Pure.
//!
//! Entries are taken in the order of the journal. What goes together in one push has different names on the other
//! side, so that git can move all of them or none.

use std::collections::HashSet;

use stargate_git::{Lease, Oid, RefName, Refs, Update};

use crate::routes::Route;

/// The most entries of one transaction that go in one push; the rest follow in the next.
pub const TXN_ENTRIES_MAX: usize = 200;
/// The most refs of a stretch that goes in one push.
pub const STRETCH_REFS_MAX: usize = 100;

/// The most that are pushed before their turn to find out whether a remote takes anything.
pub const OTHERS_MAX: usize = 1000;

/// An entry that is not accounted for, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its id.
    pub entry_id: String,
    /// What is to be done with it.
    pub what: What,
}

/// What is to be done with an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Push it.
    Push(Task),
    /// It is no entry.
    Malformed(String),
    /// It is one, but must not be pushed.
    Refuse(String),
    /// There is a status record of it: an earlier worker died before it moved the checkpoint.
    Settled,
}

/// A ref to be moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The ref, as it is called here.
    pub name: RefName,
    /// Where it goes.
    pub route: Route,
    /// What it is to be.
    pub oid: Oid,
    /// What it was, as the entry says.
    pub old: Option<Oid>,
    /// The transaction it belongs to.
    pub txn: Option<String>,
    /// Whether it was dead-lettered and requeued.
    pub requeued: bool,
}

/// What comes next. Numbers are places in the list of pending entries.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing is pending.
    Nothing,
    /// The first is no entry.
    Malformed,
    /// The first must not be pushed.
    Refuse,
    /// The first so many have a status record.
    Pass(usize),
    /// The first so many go in one push.
    Push(usize),
    /// The first so many may go in one push of the newest of each ref, if they form chains.
    Stretch(usize),
}

/// Decides what comes next. `coalesce` is how many entries a stretch may have; a ref for which `is_parked` answers yes
/// is kept out of stretches, because its refusal would be everybody's.
pub fn next(pending: &[Pending], coalesce: usize, is_parked: impl Fn(&RefName) -> bool) -> Next {
    match pending.first().map(|entry| &entry.what) {
        None => Next::Nothing,
        Some(What::Malformed(_)) => Next::Malformed,
        Some(What::Refuse(_)) => Next::Refuse,
        Some(What::Settled) => {
            Next::Pass(pending.iter().take_while(|entry| entry.what == What::Settled).count())
        }
        Some(What::Push(_)) => {
            let group = group(pending);
            let stretch = stretch(pending, coalesce, is_parked);
            if stretch > group { Next::Stretch(stretch) } else { Next::Push(group) }
        }
    }
}

fn task(entry: &Pending) -> Option<&Task> {
    match &entry.what {
        What::Push(task) => Some(task),
        What::Malformed(_) | What::Refuse(_) | What::Settled => None,
    }
}

/// How many of the first entries belong to one transaction and can go together.
fn group(pending: &[Pending]) -> usize {
    let Some(txn) = pending.first().and_then(task).and_then(|task| task.txn.as_ref()) else { return 1 };
    let mut names = HashSet::new();
    let members = pending.iter().take(TXN_ENTRIES_MAX).map_while(task).take_while(|task| {
        let route = &task.route;
        task.txn.as_ref() == Some(txn)
            && names.insert(&route.to)
            && route.watermark.as_ref().is_none_or(|watermark| names.insert(watermark))
    });
    members.count().max(1)
}

/// How many of the first entries may go as one stretch. A transaction is in it whole or not at all.
fn stretch(pending: &[Pending], most: usize, is_parked: impl Fn(&RefName) -> bool) -> usize {
    let mut refs: HashSet<&RefName> = HashSet::new();
    let mut watermarks: Vec<(&RefName, &RefName)> = Vec::new();
    let fits = |task: &Task| !is_parked(&task.name);
    let mut count = 0;
    for task in pending.iter().take(most).map_while(task).take_while(|task| fits(task)) {
        refs.insert(&task.route.to);
        if let Some(watermark) = &task.route.watermark {
            // Two ledgers that share a watermark would want it to be two things at once.
            if watermarks.iter().any(|(w, to)| *w == watermark && *to != &task.route.to) {
                break;
            }
            watermarks.push((watermark, &task.route.to));
            watermarks.dedup();
        }
        if refs.len() > STRETCH_REFS_MAX {
            break;
        }
        count += 1;
    }
    // Not in the middle of a transaction.
    while count > 0 && count < pending.len() {
        let txn = |index: usize| pending.get(index).and_then(task).and_then(|task| task.txn.as_ref());
        match (txn(count - 1), txn(count)) {
            (Some(last), Some(following)) if last == following => count -= 1,
            _ => break,
        }
    }
    count
}

/// Transactions and single entries that could be pushed before `tasks`, which come first: they share no name with them
/// or with anything before themselves, and are known whole.
pub fn others(pending: &[Pending], tasks: &[Task], is_parked: impl Fn(&RefName) -> bool) -> Vec<Vec<Task>> {
    let names_of = |task: &Task| [Some(task.route.to.clone()), task.route.watermark.clone()];
    let mut names: HashSet<RefName> = tasks.iter().flat_map(names_of).flatten().collect();
    let mut others = Vec::new();
    let mut from = tasks.len();
    while let Some(rest) = pending.get(from..).filter(|rest| !rest.is_empty()) {
        let members: Vec<Task> = rest.iter().take(group(rest)).filter_map(task).cloned().collect();
        from += members.len().max(1);
        let torn = from >= pending.len() && members.iter().any(|task| task.txn.is_some());
        let free = |task: &Task| {
            !is_parked(&task.name) && names_of(task).iter().flatten().all(|name| !names.contains(name))
        };
        if !torn && !members.is_empty() && members.iter().all(free) && others.len() < OTHERS_MAX {
            others.push(members.clone());
        }
        names.extend(members.iter().flat_map(names_of).flatten());
    }
    others
}

/// The most of the first `count` tasks that tears no transaction.
pub fn whole(tasks: &[Task], mut count: usize) -> usize {
    let txn = |index: usize| tasks.get(index).and_then(|task| task.txn.as_ref());
    while count > 0 && txn(count - 1).is_some() && txn(count - 1) == txn(count) {
        count -= 1;
    }
    count
}

/// The newest task of each ref of a stretch, in the order in which the refs appear last.
pub fn newest<'a>(tasks: &[&'a Task]) -> Vec<&'a Task> {
    let mut seen = HashSet::new();
    let mut newest: Vec<&Task> =
        tasks.iter().rev().copied().filter(|task| seen.insert(&task.route.to)).collect();
    newest.reverse();
    newest
}

/// The refspecs and leases of a push. `known` is what the other side has; a watermark must still be that.
pub fn updates(tasks: &[&Task], known: &Refs) -> (Vec<Update>, Vec<Lease>) {
    let (mut updates, mut leases) = (Vec::new(), Vec::new());
    for task in tasks {
        updates.push(Update { oid: task.oid.clone(), to: task.route.to.clone() });
        if let Some(watermark) = &task.route.watermark {
            updates.push(Update { oid: task.oid.clone(), to: watermark.clone() });
            leases.push(Lease { name: watermark.clone(), expected: known.get(watermark).cloned() });
        }
    }
    (updates, leases)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, oid: char, txn: Option<&str>) -> Pending {
        let name = RefName::parse(name).unwrap();
        let ledger = name.as_str().starts_with("refs/kv/");
        let watermark =
            ledger.then(|| RefName::parse(&format!("refs/kv-mirror/{}", name.last_part())).unwrap());
        Pending {
            entry_id: format!("{name}-{oid}"),
            what: What::Push(Task {
                route: Route { to: name.clone(), watermark },
                name,
                oid: Oid::parse(&oid.to_string().repeat(40)).unwrap(),
                old: None,
                txn: txn.map(str::to_owned),
                requeued: false,
            }),
        }
    }

    fn malformed() -> Pending {
        Pending { entry_id: "m".to_owned(), what: What::Malformed("x".to_owned()) }
    }

    const NOT_PARKED: fn(&RefName) -> bool = |_| false;

    #[test]
    fn entries_go_one_by_one_unless_a_transaction_binds_them() {
        let plain = [entry("refs/kv/a", '1', None), entry("refs/kv/b", '2', None)];
        assert_eq!(next(&plain, 0, NOT_PARKED), Next::Push(1));
        let bound = [
            entry("refs/kv-index/a", '1', Some("t")),
            entry("refs/kv/a", '2', Some("t")),
            entry("refs/kv/b", '3', Some("u")),
        ];
        assert_eq!(next(&bound, 0, NOT_PARKED), Next::Push(2));
        assert_eq!(next(&[], 0, NOT_PARKED), Next::Nothing);
        assert_eq!(next(&[malformed()], 9, NOT_PARKED), Next::Malformed);
    }

    #[test]
    fn a_push_never_has_the_same_name_twice() {
        let twice = [entry("refs/kv/a", '1', Some("t")), entry("refs/kv/a", '2', Some("t"))];
        assert_eq!(next(&twice, 0, NOT_PARKED), Next::Push(1));
        let same_watermark = [entry("refs/kv/a", '1', Some("t")), entry("refs/kv/x/a", '2', Some("t"))];
        assert_eq!(next(&same_watermark, 0, NOT_PARKED), Next::Push(1));
        assert_eq!(next(&same_watermark, 9, NOT_PARKED), Next::Push(1));
    }

    #[test]
    fn a_stretch_ends_before_what_cannot_go_with_it() {
        let entries = [
            entry("refs/kv/a", '1', None),
            entry("refs/kv/a", '2', None),
            entry("refs/kv/b", '3', None),
            malformed(),
            entry("refs/kv/a", '4', None),
        ];
        assert_eq!(next(&entries, 100, NOT_PARKED), Next::Stretch(3));
        assert_eq!(next(&entries, 2, NOT_PARKED), Next::Stretch(2));
        assert_eq!(next(&entries, 100, |name| name.as_str() == "refs/kv/b"), Next::Stretch(2));
        assert_eq!(next(&entries, 100, |name| name.as_str() == "refs/kv/a"), Next::Push(1));
        assert_eq!(next(&entries[4..], 100, NOT_PARKED), Next::Push(1));
    }

    #[test]
    fn a_stretch_does_not_tear_a_transaction() {
        let entries = [
            entry("refs/kv/a", '1', None),
            entry("refs/kv/b", '2', None),
            entry("refs/kv/a", '3', Some("t")),
            entry("refs/kv-index/a", '4', Some("t")),
        ];
        assert_eq!(next(&entries, 3, NOT_PARKED), Next::Stretch(2));
        assert_eq!(next(&entries, 4, NOT_PARKED), Next::Stretch(4));
        assert_eq!(next(&entries[2..], 1, NOT_PARKED), Next::Push(2));
    }

    #[test]
    fn others_have_nothing_to_do_with_the_first_and_are_whole() {
        let entries = [
            entry("refs/kv/a", '1', None),
            entry("refs/kv/a", '2', None),
            entry("refs/kv/parked", '3', None),
            malformed(),
            entry("refs/kv/b", '4', Some("t")),
            entry("refs/kv-index/b", '5', Some("t")),
            entry("refs/kv/b", '6', None),
            entry("refs/kv/a", '7', Some("u")),
            entry("refs/kv/c", '8', Some("u")),
            entry("refs/kv/c", '9', None),
            entry("refs/kv/d", 'a', None),
            entry("refs/kv/e", 'b', Some("v")),
        ];
        let first: Vec<Task> = entries[..1].iter().filter_map(task).cloned().collect();
        let others = others(&entries, &first, |name| name.last_part() == "parked");
        let oids = others.iter().map(|tasks| tasks.iter().map(|task| &task.oid.as_str()[..1]).collect());
        let oids: Vec<Vec<&str>> = oids.collect();
        assert_eq!(oids, [vec!["4", "5"], vec!["a"]]);
    }

    #[test]
    fn a_shorter_stretch_does_not_tear_a_transaction_either() {
        let entries = [
            entry("refs/kv/x", '1', None),
            entry("refs/kv/a", '2', Some("t")),
            entry("refs/kv/b", '3', Some("t")),
            entry("refs/kv/x", '4', None),
        ];
        let tasks: Vec<Task> = entries.iter().filter_map(task).cloned().collect();
        let cuts: Vec<usize> = (0..=4).map(|count| whole(&tasks, count)).collect();
        assert_eq!(cuts, [0, 1, 1, 3, 4]);
    }

    #[test]
    fn the_newest_of_each_ref_is_pushed_and_watermarks_are_leased() {
        let entries = [
            entry("refs/kv/a", '1', None),
            entry("refs/kv-index/a", '2', None),
            entry("refs/kv/a", '3', None),
        ];
        let tasks: Vec<&Task> = entries.iter().filter_map(task).collect();
        let newest = newest(&tasks);
        let known = Refs::from([(RefName::parse("refs/kv-mirror/a").unwrap(), tasks[0].oid.clone())]);
        let (updates, leases) = updates(&newest, &known);
        let names: Vec<&str> = updates.iter().map(|update| update.to.as_str()).collect();
        assert_eq!(names, ["refs/kv-index/a", "refs/kv/a", "refs/kv-mirror/a"]);
        assert!(updates[1].oid.as_str().starts_with('3') && updates[2].oid == updates[1].oid);
        assert_eq!(leases.len(), 1);
        assert_eq!(leases[0].expected.as_ref(), Some(&tasks[0].oid));
    }
}
