//! Remotes over the network: silent ones, unfriendly ones, and what they learn and leak.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use stargate_base::Secret;
use stargate_git::{Credentials, End, Git, Protocols, Push, PushAnswer, Update};
use stargate_testkit::git::{Server, executable, head_of, processes_with, send};

use crate::fixture::{PATIENCE, World, eventually, gits, name};

const CANARY: &str = "ghp_cAnArY4711";

async fn push(w: &World, git: &Git, timeout: Duration) -> PushAnswer {
    let updates = [Update { oid: w.commit(None, "a"), to: name("refs/kv/main") }];
    let push = Push { repo: &w.repo, remote: &w.remote, updates: &updates, leases: &[], timeout };
    git.push(&push).await.unwrap()
}

fn over_http(git: &Git) -> Git {
    git.clone().with_protocols(Protocols::parse("http").unwrap())
}

#[tokio::test]
async fn a_silent_remote_is_given_up_and_nothing_is_left_over() {
    for git in gits() {
        let server = Server::start(None);
        let w = World::new(&git).await;
        w.set_url(&server.url);
        let started = Instant::now();
        let answer = push(&w, &over_http(&git), Duration::from_secs(2)).await;
        println!("a push to a silent remote with 2 s ended after {:?}", started.elapsed());
        assert_eq!(answer.end, End::TimedOut);
        eventually("no process is left", || processes_with(&server.url, "cmdline").is_empty()).await;
    }
}

#[tokio::test]
async fn an_ssh_that_git_started_ends_with_it() {
    for git in gits() {
        let w = World::new(&git).await;
        let mark = w.dir.path().join("pid");
        let bin = w.dir.path().join("bin");
        let script =
            format!("trap '' TERM; echo \"$@\" > {0}.new; mv {0}.new {0}; sleep 86398", mark.display());
        executable(&bin.join("ssh"), &script);
        w.set_url("ssh://git@git.example/x.git");
        let mut path = bin.into_os_string();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let git = Git::new(git.program(), path)
            .with_credentials(Credentials::ssh_key(std::path::Path::new("/etc/stargate/key"), None).unwrap());
        // Long enough for ssh to start on a loaded machine.
        let answer = push(&w, &git, Duration::from_secs(6)).await;
        assert_eq!(answer.end, End::TimedOut);
        let args = std::fs::read_to_string(&mark).unwrap();
        assert!(args.contains("BatchMode=yes") && args.contains("-i /etc/stargate/key"), "{args}");
        eventually("ssh is gone", || processes_with("sleep 86398", "cmdline").is_empty()).await;
    }
}

#[tokio::test]
async fn a_token_reaches_its_server_and_nothing_else() {
    for git in gits() {
        let server = Server::start(Some("401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\""));
        let w = World::new(&git).await;
        w.set_url(&server.url);
        let token = || Secret::new(CANARY);
        let git = over_http(&git);
        let known = git.clone().with_credentials(Credentials::token(&server.url, "robot", token()).unwrap());
        let answer = push(&w, &known, PATIENCE).await;
        assert_eq!(answer.end, End::Exited(128));
        // cm9ib3Q6… is robot:…
        assert!(server.heard().contains("Authorization: Basic cm9ib3Q6"), "{}", server.heard());
        assert!(!format!("{answer:?} {known:?}").contains(CANARY));

        // The same token for another host stays here.
        let before = server.heard().matches("Authorization").count();
        let other = Credentials::token("https://git.example/", "robot", token()).unwrap();
        let answer = push(&w, &git.clone().with_credentials(other), PATIENCE).await;
        assert_eq!(answer.end, End::Exited(128));
        assert_eq!(server.heard().matches("Authorization").count(), before, "told to a stranger");
    }
}

#[tokio::test]
async fn a_token_is_in_no_argument_of_any_process_while_git_runs_and_in_no_file() {
    for git in gits() {
        // Asks for the token first, and is silent when it has it, until we have looked.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/x.git", listener.local_addr().unwrap());
        let (told, hears) = std::sync::mpsc::channel();
        let (goes_on, waits) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                if head_of(&mut stream).contains("Authorization:") {
                    let _ = told.send(());
                    let _ = waits.recv();
                }
                send(&mut stream, "401 No\r\nWWW-Authenticate: Basic realm=\"x\"");
            }
        });
        let w = World::new(&git).await;
        w.set_url(&url);
        let git =
            over_http(&git).with_credentials(Credentials::token(&url, "robot", Secret::new(CANARY)).unwrap());
        let looks = async {
            eventually("the server was told", || hears.try_recv().is_ok()).await;
            let shown = processes_with(CANARY, "cmdline");
            drop(goes_on);
            shown
        };
        let (answer, shown) = tokio::join!(push(&w, &git, PATIENCE), looks);
        assert_eq!(shown, Vec::<String>::new());
        assert_eq!(answer.end, End::Exited(128));
        let config = std::fs::read_to_string(w.repo.path().join("config")).unwrap();
        assert!(!config.contains(CANARY) && !format!("{answer:?}").contains(CANARY));
    }
}

#[tokio::test]
async fn what_a_url_carries_is_not_shown_whatever_the_transport_says_about_it() {
    for git in gits() {
        let w = World::new(&git).await;
        let git = git.clone().with_protocols(Protocols::parse("git,http,https").unwrap());
        for scheme in ["git", "http"] {
            w.set_url(&format!("{scheme}://robot:{CANARY}@127.0.0.1:9/x.git"));
            let answer = push(&w, &git, PATIENCE).await;
            assert_eq!(answer.end, End::Exited(128));
            assert!(!format!("{answer:?}").contains(CANARY), "{answer:?}");
        }
    }
}
