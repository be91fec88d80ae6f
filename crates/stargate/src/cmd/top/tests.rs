//! What is drawn and what keys do, without a terminal.

use jiff::Timestamp;
use stargate_base::ErrorClass;
use stargate_queue::JobId;
use stargate_queue::job::WorkerId;
use stargate_queue::store::{Activity, FailureGroup, PauseTarget, QueueCounts, WorkerRow};

use super::screen::{Change, Effect, Key, Screen, Tab};
use super::snapshot::Snapshot;
use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + second).unwrap()
}

fn queue(name: &str, ready: u64, paused: bool) -> QueueCounts {
    QueueCounts { queue: name.to_owned(), ready, paused, ..QueueCounts::default() }
}

fn worker(name: &str, alive: bool, holding: u64) -> WorkerRow {
    WorkerRow {
        id: WorkerId(1),
        name: name.to_owned(),
        kinds: Vec::new(),
        queues: Vec::new(),
        concurrency: 4,
        started_at: at(0),
        beat_at: at(50),
        holding,
        alive,
    }
}

fn snapshot() -> Snapshot {
    let bucket = |index: i64| Activity {
        from: at(index * 60),
        done: 30,
        failed: u64::from(index == 3),
        cancelled: 0,
        wait_p50_ms: Some(5),
        wait_p95_ms: Some(40),
        complete: true,
    };
    Snapshot {
        at: at(60),
        queues: vec![queue("default", 600, false), queue("mail", 7, true)],
        paused_kinds: Vec::new(),
        running: Vec::new(),
        failures: vec![FailureGroup {
            kind: "mail".to_owned(),
            code: "HTTP_UNAVAILABLE".to_owned(),
            class: ErrorClass::RetryableTransient,
            count: 12,
            newest: JobId(77),
            last_at: at(30),
            oldest_at: at(0),
            message: "line one\nline\u{1b}[31m two".to_owned(),
            queues: vec!["mail".to_owned()],
        }],
        activity: (0..60).map(bucket).collect(),
        workers: vec![worker("web-1", true, 3), worker("web-2", false, 2)],
        oldest_ready: Some(std::time::Duration::from_secs(5)),
        leader: None,
        mirrors: Vec::new(),
    }
}

fn screen(tab: Tab) -> Screen {
    let mut screen = Screen::new("sqlite:x.db".to_owned(), tab);
    screen.update(Ok(snapshot()));
    screen
}

fn frame(tab: Tab) -> String {
    text(&screen(tab), (120, 40))
}

#[test]
fn the_overview_tells_problems_first_and_when_nothing_will_be_ready() {
    let shown = frame(Tab::Overview);
    let line = |words: &str| shown.lines().position(|line| line.contains(words)).unwrap_or(usize::MAX);
    assert!(line("! worker web-2 is silent and holds 2 jobs") < line("- queue mail is paused"), "{shown}");
    assert!(line("1 jobs failed within the last hour") < line("607 ready"), "{shown}");
    assert!(shown.contains("30.0 done per minute   nothing ready in about 20 min"), "{shown}");
    assert!(
        shown.contains("95 % of jobs under 40 ms") && shown.contains("1 alive, 3 of 4 slots in use"),
        "{shown}"
    );
}

#[test]
fn every_view_is_drawn_and_texts_from_outside_steer_nothing() {
    for tab in Tab::ALL {
        let shown = frame(tab);
        assert!(shown.contains(tab.title()), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
    assert!(frame(Tab::Failures).contains("HTTP_UNAVAILABLE"));
    assert!(frame(Tab::Workers).contains("silent"));
}

#[test]
fn a_small_terminal_is_drawn_without_a_panic() {
    for tab in Tab::ALL {
        for size in [(1, 1), (10, 3), (40, 8)] {
            text(&screen(tab), size);
        }
    }
}

#[test]
fn keys_move_ask_and_do_nothing_without_a_yes() {
    let mut screen = screen(Tab::Overview);
    assert_eq!(screen.press(Key::Char('2')), Effect::Nothing);
    assert_eq!(screen.tab, Tab::Queues);
    screen.press(Key::Down);
    screen.press(Key::Down);
    assert_eq!(screen.row(), 1, "there are two rows");
    screen.press(Key::Char('p'));
    let resume = Change::Resume(PauseTarget::Queue("mail".to_owned()));
    assert_eq!(screen.asked.as_ref(), Some(&resume));
    assert_eq!(resume.twin(), "stargate queue resume mail");
    assert_eq!(screen.press(Key::Char('n')), Effect::Nothing);
    assert_eq!(screen.asked, None);
    screen.press(Key::Up);
    screen.press(Key::Char('p'));
    assert_eq!(
        screen.press(Key::Char('y')),
        Effect::Do(Change::Pause(PauseTarget::Queue("default".to_owned())))
    );
    screen.press(Key::Char('4'));
    screen.press(Key::Char('r'));
    assert_eq!(screen.press(Key::Char('y')), Effect::Do(Change::Retry(JobId(77))));
    screen.press(Key::Previous);
    assert_eq!(screen.tab, Tab::Jobs);
    screen.press(Key::Char('c'));
    assert_eq!(screen.asked, None, "nothing runs");
    assert_eq!(screen.press(Key::Char('q')), Effect::Quit);
}

#[test]
fn what_is_held_stays_and_trouble_is_shown_beside_the_last_look() {
    let mut screen = screen(Tab::Queues);
    screen.press(Key::Char(' '));
    screen.update(Ok(Snapshot { queues: Vec::new(), ..snapshot() }));
    assert_eq!(screen.rows(Tab::Queues), 2, "held");
    assert_eq!(screen.press(Key::Char(' ')), Effect::Refresh);
    screen.update(Err("no answer from http://x".to_owned()));
    let shown = text(&screen, (120, 20));
    assert!(shown.contains("no answer from http://x") && shown.contains("mail"), "{shown}");
    screen.update(Ok(Snapshot { queues: vec![queue("one", 1, false)], ..snapshot() }));
    assert_eq!(screen.trouble, None);
}
