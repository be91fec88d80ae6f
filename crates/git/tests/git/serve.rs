//! The side that serves: repositories, the two services, sizes.

use std::path::Path;

use stargate_git::{End, RepoDir, Serve, Service};
use stargate_testkit::git::{executable, processes_with};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fixture::{World, eventually, gits, name};

fn serve(repo: &RepoDir, service: Service, advertise: bool) -> Serve<'_> {
    Serve { service, repo, advertise, stateless: true, protocol: None, settings: &[], env: &[] }
}

#[tokio::test]
async fn a_new_repository_is_bare_and_without_hooks() {
    for git in gits() {
        let w = World::new(&git).await;
        assert!(!w.repo.path().join("hooks").exists());
        assert_eq!(w.git.head(&w.repo).await.unwrap(), Some((name("refs/heads/main"), None)));
        w.git.set_config(&w.repo, "http.receivepack", "true").await.unwrap();
        assert_eq!(w.run(w.repo.path(), &["config", "http.receivepack"]), "true");
        for key in ["--system", "nodot", "a.b\nc", "-x.y"] {
            assert!(w.git.set_config(&w.repo, key, "x").await.is_err(), "{key}");
        }
        let a = w.commit(None, "a");
        w.run(w.repo.path(), &["update-ref", "refs/heads/main", a.as_str()]);
        assert_eq!(w.git.head(&w.repo).await.unwrap(), Some((name("refs/heads/main"), Some(a))));
        let count = w.git.count_objects(&w.repo).await.unwrap();
        assert_eq!((count.loose, count.packs), (2, 0));
        assert!(count.bytes > 0);
        assert!(RepoDir::open(w.dir.path()).is_err());
        assert!(RepoDir::open(Path::new("/no/such/place")).is_err());
    }
}

#[tokio::test]
async fn refs_are_advertised_in_the_protocol_that_the_client_asked_for() {
    for git in gits() {
        let w = World::new(&git).await;
        let a = w.commit(None, "a");
        w.run(w.repo.path(), &["update-ref", "refs/heads/main", a.as_str()]);
        for (protocol, expected) in [(None, a.as_str()), (Some("version=2"), "version 2")] {
            let what = Serve { protocol, ..serve(&w.repo, Service::UploadPack, true) };
            let mut session = w.git.serve(&what).unwrap();
            drop(session.stdin);
            let mut text = Vec::new();
            session.stdout.read_to_end(&mut text).await.unwrap();
            assert_eq!(session.process.wait().await.map(End::from).unwrap(), End::Exited(0));
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(text.contains(expected), "{text}");
        }
    }
}

#[tokio::test]
async fn a_session_that_is_dropped_takes_its_hooks_with_it() {
    for git in gits() {
        let w = World::new(&git).await;
        let mark = w.dir.path().join("pid");
        let script =
            format!("echo $STARGATE_PUSHER > {0}.new; mv {0}.new {0}; exec sleep 86399", mark.display());
        executable(&w.repo.path().join("hooks/pre-receive"), &script);
        let (_, pack) = request(&w);
        let env = [("STARGATE_PUSHER".into(), "somebody".into())];
        let what = Serve { env: &env, ..serve(&w.repo, Service::ReceivePack, false) };
        let mut session = w.git.serve(&what).unwrap();
        session.stdin.write_all(&pack).await.unwrap();
        session.stdin.flush().await.unwrap();
        eventually("the hook runs", || mark.exists()).await;
        assert_eq!(std::fs::read_to_string(&mark).unwrap(), "somebody\n");
        let group = session.process.group().as_raw_nonzero().get();
        drop(session);
        eventually("the hook is gone", || {
            let stats = processes_with(&format!(" {group} "), "stat");
            stats.iter().all(|stat| stat.contains(") Z") || !stat.contains(&format!(" {group} {group} ")))
                && processes_with("sleep 86399", "cmdline").is_empty()
        })
        .await;
    }
}

/// A request that makes a ref from an object that is already there, with an empty pack.
fn request(w: &World) -> (String, Vec<u8>) {
    let a = w.commit(None, "a");
    let command = format!("{} {a} refs/heads/x\0 report-status\n", a.zero_like());
    let mut bytes = format!("{:04x}{command}0000", command.len() + 4).into_bytes();
    // The pack of no objects.
    bytes.extend(b"PACK\0\0\0\x02\0\0\0\0");
    bytes.extend([
        0x02, 0x9d, 0x08, 0x82, 0x3b, 0xd8, 0xa8, 0xea, 0xb5, 0x10, 0xad, 0x6a, 0xc7, 0x5c, 0x82, 0x3c, 0xfd,
        0x3e, 0xd3, 0x1e,
    ]);
    (a.to_string(), bytes)
}

#[tokio::test]
async fn a_push_is_received_through_the_streams() {
    for git in gits() {
        let w = World::new(&git).await;
        let (oid, pack) = request(&w);
        let mut session = w.git.serve(&serve(&w.repo, Service::ReceivePack, false)).unwrap();
        session.stdin.write_all(&pack).await.unwrap();
        drop(session.stdin);
        let mut text = Vec::new();
        session.stdout.read_to_end(&mut text).await.unwrap();
        assert!(String::from_utf8_lossy(&text).contains("ok refs/heads/x"), "{text:?}");
        assert_eq!(session.process.wait().await.map(End::from).unwrap(), End::Exited(0));
        assert_eq!(w.run(w.repo.path(), &["rev-parse", "refs/heads/x"]), oid);
    }
}
