//! How taps end: by themselves, when they are told to, and when they do not want to.

use std::time::Duration;

use stargate_directive::Pointer;
use stargate_testkit::eventually;

use crate::bench::{Bench, PATIENCE, gone, page, read, state, written};

#[tokio::test]
async fn a_tap_that_ignores_the_request_is_killed_with_all_that_it_started() {
    let script = r#"trap '' TERM; sh -c 'trap "" TERM; while :; do sleep 600; done' & echo "$$ $!" > pids; while :; do sleep 600; done"#;
    let bench = Bench::with_script(script);
    let feed = bench.open("", &Pointer::Null).await.unwrap();
    let pids = written(&bench.path("pids")).await;
    feed.close().await;
    for pid in pids.split(' ') {
        gone(pid).await;
    }
    assert_eq!(bench.left(), 0);
}

#[tokio::test]
async fn a_tap_can_tidy_up_although_nobody_reads_what_it_says() {
    let script = r#"
        trap 'echo "{}" ; echo tidy > tidy; exit' TERM; echo $$ > pid
        while :; do echo '{"type":"RECORD","stream":"s","record":{}}'; done"#;
    let bench = Bench::with_script(script);
    let mut feed = bench.open("", &Pointer::Null).await.unwrap();
    page(&mut *feed, 10).await.unwrap();
    let pid = written(&bench.path("pid")).await;
    // It waits in its write: the pipe is full.
    eventually(PATIENCE, "a tap that waits", || async {
        state(&pid).filter(|state| *state == 'S').map(|_| ()).ok_or_else(|| "it runs".to_owned())
    })
    .await;
    feed.close().await;
    gone(&pid).await;
    assert_eq!(written(&bench.path("tidy")).await, "tidy");
}

#[tokio::test]
async fn a_page_that_is_given_up_leaves_a_feed_that_can_be_closed() {
    let script = r#"echo $$ > pid; echo '{"type":"RECORD","stream":"s","record":{}}'; exec sleep 600"#;
    let bench = Bench::with_script(script);
    let mut feed = bench.open("", &Pointer::Null).await.unwrap();
    let pid = {
        let page = feed.page(10);
        tokio::pin!(page);
        let started = bench.path("pid");
        tokio::select! {
            page = &mut page => panic!("{page:?} before the tap's end"),
            pid = written(&started) => pid,
        }
    };
    tokio::time::timeout(PATIENCE, feed.close()).await.expect("the feed does not close");
    gone(&pid).await;
    assert_eq!(bench.left(), 0);
}

#[tokio::test]
async fn a_feed_that_is_dropped_leaves_nothing() {
    let bench = Bench::with_script("sleep 600 & echo \"$$ $!\" > pids; wait");
    let feed = bench.open("", &Pointer::Null).await.unwrap();
    let pids = written(&bench.path("pids")).await;
    drop(feed);
    for pid in pids.split(' ') {
        gone(pid).await;
    }
    assert_eq!(bench.left(), 0);
}

#[tokio::test]
async fn what_a_tap_leaves_running_holds_nobody_up() {
    let record = r#"echo '{"type":"RECORD","stream":"s","record":{}}'"#;
    let bench = Bench::with_script(&format!("sleep 600 & echo $! > pid; {record}"));
    let (pages, error) = bench.read("", 10).await;
    assert!(error.is_none() && pages.len() == 1 && pages[0].is_last, "{pages:?} {error:?}");
    gone(&written(&bench.path("pid")).await).await;

    // One that made itself the leader of a session is out of reach, but its hold on the pipes does no harm.
    let bench = Bench::with_script(&format!(
        "setsid sh -c 'echo $$ > pid; exec sleep 600' & {record}; while [ ! -s pid ]; do sleep 0.1; done"
    ));
    let (pages, error) = bench.read("", 10).await;
    assert!(error.is_none() && pages.len() == 1 && pages[0].is_last, "{pages:?} {error:?}");
    let pid =
        written(&bench.path("pid")).await.parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_tap_is_read_only_as_pages_are_asked_for() {
    const COUNT: usize = 50_000;
    let script = format!(
        r#"exec python3 -c "
import json, os
open('pid', 'w').write(f'{{os.getpid()}}\n')
for n in range({COUNT}): print(json.dumps({{'type': 'RECORD', 'stream': 's', 'record': {{'id': n}}}}))
open('done', 'w').write('done\n')
""#
    );
    let bench = Bench::with_script(&script);
    let mut feed = bench.open("", &Pointer::Null).await.unwrap();
    let first = page(&mut *feed, 100).await.unwrap();
    assert_eq!(first.records.len(), 100);
    let pid = written(&bench.path("pid")).await;
    eventually(PATIENCE, "a tap that waits", || async {
        state(&pid).filter(|state| *state == 'S').map(|_| ()).ok_or_else(|| "it runs".to_owned())
    })
    .await;
    assert!(!bench.path("done").exists(), "it went on without anybody reading");
    let (pages, error) = read(&mut *feed, 5000).await;
    feed.close().await;
    assert!(error.is_none(), "{error:?}");
    let count: usize = pages.iter().map(|page| page.records.len()).sum();
    assert_eq!(count + first.records.len(), COUNT);
    assert!(bench.path("done").exists());
}

#[tokio::test]
async fn a_tap_may_be_silent_for_as_long_as_it_likes_and_still_be_cancelled() {
    let bench = Bench::with_script("echo $$ > pid; exec sleep 600");
    let mut feed = bench.open("", &Pointer::Null).await.unwrap();
    let pid = written(&bench.path("pid")).await;
    assert!(tokio::time::timeout(Duration::from_millis(50), feed.page(10)).await.is_err());
    feed.close().await;
    gone(&pid).await;
}

#[tokio::test]
async fn what_is_safe_is_given_out_although_the_tap_takes_its_time() {
    let record = |id: u32| format!("echo '{{\"type\":\"RECORD\",\"stream\":\"s\",\"record\":{id}}}'");
    let script = format!(
        "{}; echo '{{\"type\":\"STATE\",\"value\":7}}'; {}; while [ ! -e go ]; do sleep 0.1; done; {}",
        record(1),
        record(2),
        record(3)
    );
    let bench = Bench::with_script(&script);
    let mut feed = bench.open("", &Pointer::Null).await.unwrap();
    let first = page(&mut *feed, 100).await.unwrap();
    assert_eq!((first.records.as_slice(), first.next), (["1".to_owned()].as_slice(), Some(7.into())));
    assert!(!first.is_last);
    bench.write("go", "");
    let (rest, error) = read(&mut *feed, 100).await;
    feed.close().await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(rest.len(), 1);
    assert_eq!(rest[0].records, ["2", "3"]);
}
