//! Names and histories: what goes where, what never goes back, what `wait`, `sync`, `verify` and `status` say.

use std::time::Duration;

use stargate_git::RefPattern;
use stargate_mirror::compare::Standing;
use stargate_mirror::dead_letter::Reason;
use stargate_mirror::permit::Always;
use stargate_mirror::status::Status;
use stargate_mirror::sync::{Mode, sync};
use stargate_mirror::verify::verify;
use stargate_mirror::wait::{Waited, wait};
use stargate_mirror::{Report, Routes};

use crate::fixture::{MAIN, PATIENCE, WATERMARK, World, gits};

#[tokio::test]
async fn an_index_moves_no_watermark() {
    let w = World::new(&gits()[0]).await;
    let a = w.commit(None, "a");
    w.push("refs/kv-index/main", None, &a);
    w.drain_all().await;
    assert_eq!(w.remote_refs(), ["refs/kv-index/main"]);
}

#[tokio::test]
async fn a_replayed_old_entry_is_done_and_moves_nothing() {
    for git in gits() {
        let w = World::new(&git).await;
        let chain = w.chain(3);
        w.push(MAIN, None, &chain[2]);
        w.drain_all().await;
        w.log_updates();
        let old = w.journal(MAIN, Some(&chain[0]), &chain[1]);
        let same = w.journal(MAIN, None, &chain[2]);
        w.drain_all().await;
        w.assert_mirrored(&chain[2]);
        for id in [old, same] {
            assert_eq!(w.status(&id), (Status::Completed, "already-mirrored".to_owned()));
        }
        assert!(w.updates(MAIN).is_empty(), "INV-4");
    }
}

#[tokio::test]
async fn a_remote_that_is_further_than_we_know_has_it_too() {
    for git in gits() {
        let w = World::new(&git).await;
        let a = w.commit(None, "a");
        w.push(MAIN, None, &a);
        w.drain_all().await;
        let b = w.commit(Some(&a), "b");
        w.run(w.repo.path(), &["push", "-q", "github-origin", &format!("{b}:{MAIN}")], b"");
        let ahead = w.commit_in(&w.remote, Some(&b), "only there");
        w.run(w.remote.path(), &["update-ref", MAIN, ahead.as_str()], b"");
        let id = w.push(MAIN, Some(&a), &b);
        w.drain_all().await;
        assert_eq!(w.status(&id), (Status::Completed, "already-mirrored".to_owned()));
        assert_eq!(w.remote_ref(MAIN), Some(ahead));
    }
}

#[tokio::test]
async fn a_diverged_ref_is_given_up_and_stays_as_it_is_and_the_others_go_on() {
    for git in gits() {
        let w = World::new(&git).await;
        let theirs = w.commit_in(&w.remote, None, "theirs");
        w.run(w.remote.path(), &["update-ref", MAIN, theirs.as_str()], b"");
        let ours = w.commit(None, "ours");
        let first = w.push(MAIN, None, &ours);
        let next = w.commit(Some(&ours), "next");
        let second = w.push(MAIN, Some(&ours), &next);
        let other = w.push("refs/kv/other", None, &ours);
        w.drain_all().await;
        assert_eq!(w.remote_ref(MAIN), Some(theirs), "INV-4");
        assert_eq!(w.remote_ref("refs/kv/other"), Some(ours));
        assert_eq!(w.status(&other).0, Status::Completed);
        let letters = w.letters();
        assert_eq!(letters.len(), 2);
        assert!(letters.iter().all(|stored| stored.letter.reason == Reason::Diverged));
        assert_eq!(w.record(&first).attempts, 3);
        assert_eq!(w.record(&second).attempts, 1, "a parked ref does not hold up the others");
    }
}

#[tokio::test]
async fn deletions_and_refs_that_are_not_mirrored_are_not_pushed() {
    let w = World::new(&gits()[0]).await;
    let a = w.commit(None, "a");
    w.push(MAIN, None, &a);
    w.drain_all().await;
    let deleted = w.journal(MAIN, Some(&a), &a.zero_like());
    let foreign = w.journal("refs/heads/main", None, &a);
    let missing = w.journal("refs/kv/x", None, &stargate_git::Oid::parse(&"1".repeat(40)).unwrap());
    w.drain_all().await;
    assert_eq!(w.remote_refs(), [WATERMARK, MAIN]);
    for id in [deleted, foreign, missing] {
        assert_eq!(w.status(&id).0, Status::DeadLetter);
    }
    let reasons: Vec<Reason> = w.letters().iter().map(|stored| stored.letter.reason).collect();
    assert_eq!(reasons, [Reason::Local; 3]);
}

#[tokio::test]
async fn mapped_refs_go_to_their_other_name() {
    let mut w = World::new(&gits()[0]).await;
    let pattern = |text| RefPattern::parse(text).unwrap();
    let map = vec![(pattern("refs/_blog/*"), pattern("refs/heads/_mirror/*"))];
    w.config.routes = Routes::new(vec![pattern("refs/_blog/*")], Vec::new(), map).unwrap();
    let a = w.commit(None, "a");
    w.push("refs/_blog/post", None, &a);
    w.drain_all().await;
    assert_eq!(w.remote_refs(), ["refs/heads/_mirror/post"]);
    let proof = verify(&w.git, &w.repo, &w.config).await.unwrap();
    assert!(proof.verified && proof.equal == 1, "{proof:?}");
}

#[tokio::test]
async fn waiting_ends_when_the_remote_has_the_commit_or_the_time_is_over() {
    for git in gits() {
        let w = World::new(&git).await;
        let chain = w.chain(3);
        let look = async |oid, timeout, repo| {
            wait(&w.git, repo, &w.config, "main", oid, timeout, Duration::from_millis(50)).await.unwrap()
        };
        let short = Duration::from_secs(2);
        assert!(matches!(look(&chain[0], short, &w.repo).await, Waited::TimedOut { watermark: None, .. }));
        w.push(MAIN, None, &chain[1]);
        let (waited, ()) = tokio::join!(look(&chain[0], PATIENCE, &w.repo), w.drain_all());
        assert_eq!(waited, Waited::Visible { watermark: chain[1].clone() });
        assert!(matches!(look(&chain[2], short, &w.repo).await, Waited::TimedOut { watermark: Some(_), .. }));
        // From a repository that has none of it.
        let init = stargate_git::Init { default_branch: crate::fixture::name("refs/heads/x"), sha256: false };
        let empty = w.git.init_bare(&w.dir.path().join("ci.git"), &init).await.unwrap();
        let url = w.remote.path().to_str().unwrap();
        w.run(empty.path(), &["config", "remote.github-origin.url", url], b"");
        assert!(matches!(look(&chain[0], PATIENCE, &empty).await, Waited::Visible { .. }));
        w.set_url("/no/such/place");
        match look(&chain[0], short, &w.repo).await {
            Waited::TimedOut { error: Some(error), .. } => assert!(error.contains("ls-remote"), "{error}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn sync_tells_how_refs_stand_and_repairs_only_forward() {
    for git in gits() {
        let w = World::new(&git).await;
        let chain = w.chain(3);
        let url = "github-origin";
        let there = |oid: &stargate_git::Oid, to: &str| {
            w.run(w.repo.path(), &["push", "-q", url, &format!("{oid}:{to}")], b"");
        };
        for (r, here, remote) in [
            ("refs/kv/equal", Some(&chain[1]), Some(&chain[1])),
            ("refs/kv/ahead", Some(&chain[2]), Some(&chain[0])),
            ("refs/kv/behind", Some(&chain[0]), Some(&chain[2])),
            ("refs/kv/here", Some(&chain[0]), None),
            ("refs/kv/there", None, Some(&chain[0])),
        ] {
            here.iter().for_each(|oid| w.update_ref(r, oid));
            remote.iter().for_each(|oid| there(oid, r));
        }
        let theirs = w.commit_in(&w.remote, None, "theirs");
        w.run(w.remote.path(), &["update-ref", "refs/kv/diverged", theirs.as_str()], b"");
        w.update_ref("refs/kv/diverged", &chain[0]);
        let unknown = w.commit_in(&w.remote, Some(&chain[0]), "more");
        w.run(w.remote.path(), &["update-ref", "refs/kv/unknown", unknown.as_str()], b"");
        w.update_ref("refs/kv/unknown", &chain[0]);

        let before = w.run(w.remote.path(), &["for-each-ref"], b"");
        let dry = sync(&w.git, &w.repo, &w.config, Mode::DryRun, &Always).await.unwrap();
        assert_eq!(w.run(w.remote.path(), &["for-each-ref"], b""), before, "a dry run changes nothing");
        let stands: Vec<(&str, Standing)> =
            dry.refs.iter().map(|pair| (pair.name.last_part(), pair.standing)).collect();
        assert_eq!(
            stands,
            [
                ("ahead", Standing::Ahead),
                ("behind", Standing::Behind),
                ("diverged", Standing::Diverged),
                ("equal", Standing::Equal),
                ("here", Standing::OnlyHere),
                ("there", Standing::OnlyThere),
                ("unknown", Standing::Behind),
            ]
        );
        assert!(!dry.is_aligned());
        let done = sync(&w.git, &w.repo, &w.config, Mode::Repair, &Always).await.unwrap();
        let names = |refs: Vec<&str>| refs.join(" ");
        assert_eq!(names(done.repaired.iter().map(|r| r.last_part()).collect()), "ahead here");
        assert_eq!(
            names(done.refused.iter().map(|r| r.name.last_part()).collect()),
            "behind diverged there unknown"
        );
        assert_eq!(w.remote_ref("refs/kv/diverged"), Some(theirs));
        assert_eq!(w.remote_ref("refs/kv/behind"), Some(chain[2].clone()));
        assert_eq!(w.remote_ref("refs/kv/ahead"), Some(chain[2].clone()));
        assert!(sync(&w.git, &w.repo, &w.config, Mode::Repair, &|| false).await.is_ok(), "nothing to push");
    }
}

#[tokio::test]
async fn a_report_says_what_waits_and_a_proof_what_differs() {
    let w = World::new(&gits()[0]).await;
    let chain = w.chain(3);
    w.push(MAIN, None, &chain[0]);
    let report = Report::of(w.repo.path()).unwrap();
    assert_eq!((report.backlog, report.backlog_is_exact, report.dead_letters), (1, true, 0));
    assert!(report.oldest_pending_at.is_some() && report.worker.is_none());
    assert!(!verify(&w.git, &w.repo, &w.config).await.unwrap().verified);
    w.drain_all().await;
    for n in 1..3 {
        w.push(MAIN, Some(&chain[n - 1]), &chain[n]);
    }
    w.drain_all().await;
    let report = Report::of(w.repo.path()).unwrap();
    assert_eq!((report.backlog, report.caught_up_in_seconds), (0, Some(0.0)));
    assert!(report.speed.is_some() && report.last_mirrored.is_some());
    let worker = report.worker.unwrap();
    assert_eq!((worker.running, worker.breaker.as_str()), (false, "closed"));
    let proof = verify(&w.git, &w.repo, &w.config).await.unwrap();
    assert_eq!((proof.verified, proof.equal, proof.different), (true, 1, 0));
    w.run(w.remote.path(), &["update-ref", WATERMARK, chain[0].as_str()], b"");
    let proof = verify(&w.git, &w.repo, &w.config).await.unwrap();
    assert_eq!((proof.verified, proof.stale_watermarks.len()), (false, 1));
}
