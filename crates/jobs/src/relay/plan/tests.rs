//! The order of each key, whatever the others do.

use serde_json::value::to_raw_value;

use super::*;

fn announcement(id: i64, key: &str) -> Announcement {
    Announcement {
        id: OutboxId(id),
        topic: "t".into(),
        key: key.into(),
        payload: to_raw_value(&id).unwrap(),
        created_at: jiff::Timestamp::UNIX_EPOCH,
        attempts: 0,
    }
}

fn page(rows: &[(i64, &str)]) -> Vec<Announcement> {
    rows.iter().map(|(id, key)| announcement(*id, key)).collect()
}

/// A page with nothing but one key, which fills it.
fn full(from: i64, key: &str) -> Vec<Announcement> {
    (from..from + i64::from(PAGE)).map(|id| announcement(id, key)).collect()
}

fn ids(lanes: &[Lane]) -> Vec<(&str, Vec<i64>)> {
    lanes
        .iter()
        .map(|lane| (lane.key.as_str(), lane.announcements.iter().map(|one| one.id.0).collect()))
        .collect()
}

#[test]
fn each_key_is_a_lane_in_its_order() {
    let now = Instant::now();
    let mut sweep = Sweep::new(now);
    let lanes = sweep.take(page(&[(1, "a"), (2, "b"), (3, "a"), (4, "c"), (5, "b")]), now);
    assert_eq!(ids(&lanes), [("a", vec![1, 3]), ("b", vec![2, 5]), ("c", vec![4])]);
    assert_eq!(sweep.next(), (now + POLL, None), "a page that is not full ends the sweep");
}

#[test]
fn a_key_in_flight_is_not_begun_a_second_time() {
    let now = Instant::now();
    let mut sweep = Sweep::new(now);
    sweep.take(page(&[(1, "a"), (2, "b")]), now);
    sweep.ended("b", now);
    let lanes = sweep.take(page(&[(1, "a"), (3, "a"), (4, "b")]), now);
    assert_eq!(ids(&lanes), [("b", vec![4])]);
    sweep.ended("a", now);
    assert_eq!(sweep.next(), (now, None), "what was passed over is read at once");
    assert_eq!(ids(&sweep.take(page(&[(3, "a")]), now)), [("a", vec![3])]);
}

#[test]
fn a_key_that_was_passed_over_is_passed_over_for_the_rest_of_the_sweep() {
    let now = Instant::now();
    let mut sweep = Sweep::new(now);
    sweep.take(page(&[(1, "a")]), now);
    sweep.failed("a".into(), now + POLL);
    assert!(sweep.take(full(1, "a"), now).is_empty(), "it is paused");
    let later = now + POLL * 2;
    let lanes = sweep.take(page(&[(101, "a"), (102, "b")]), later);
    assert_eq!(ids(&lanes), [("b", vec![102])], "the pause is over, but earlier ones of the key wait");
    sweep.ended("b", later);
    assert_eq!(ids(&sweep.take(page(&[(1, "a"), (2, "a")]), later)), [("a", vec![1, 2])]);
}

#[test]
fn a_failure_in_the_middle_of_a_sweep_holds_for_the_pages_behind() {
    let now = Instant::now();
    let mut sweep = Sweep::new(now);
    let lanes = sweep.take(full(1, "a"), now);
    assert_eq!(lanes[0].announcements.len(), LANE_MAX, "the rest would have to stay in memory");
    sweep.failed("a".into(), now);
    assert!(sweep.take(full(101, "a"), now).is_empty());
    assert_eq!(sweep.next(), (now, Some(OutboxId(200))), "what is behind it is not kept waiting");
    assert_eq!(ids(&sweep.take(page(&[(201, "b")]), now)), [("b", vec![201])]);
}

#[test]
fn pages_of_a_busy_key_are_not_read_in_a_hurry() {
    let now = Instant::now();
    let mut sweep = Sweep::new(now);
    assert_eq!(sweep.take(full(1, "a"), now).len(), 1);
    assert_eq!(sweep.next(), (now, Some(OutboxId(100))));
    assert!(sweep.take(full(101, "a"), now).is_empty());
    assert_eq!(sweep.next(), (now + POLL, Some(OutboxId(200))));
    sweep.ended("a", now);
    assert_eq!(sweep.next(), (now, None));
}

#[test]
fn many_pages_in_vain_are_read_seldom() {
    let now = Instant::now();
    let mut sweep = Sweep::new(now);
    sweep.take(page(&[(1, "a")]), now);
    sweep.failed("a".into(), now + POLL * 100);
    for n in 0..5 {
        assert!(sweep.take(full(1 + n * 100, "a"), now).is_empty());
    }
    sweep.take(page(&[]), now);
    assert_eq!(sweep.next(), (now + POLL * 6, None));
}

#[test]
fn so_many_failing_keys_end_a_sweep() {
    let now = Instant::now();
    let mut sweep = Sweep::new(now);
    let mut id = 0;
    while sweep.passed.len() < PASSED_MAX {
        let rows: Vec<Announcement> = (0..PAGE)
            .map(|_| {
                id += 1;
                announcement(id, &format!("k{id}"))
            })
            .collect();
        for lane in sweep.take(rows, now) {
            sweep.failed(lane.key, now + POLL * 100);
        }
    }
    let rows: Vec<Announcement> = (0..i64::from(PAGE)).map(|n| announcement(id + n, "x")).collect();
    sweep.take(rows, now);
    assert!(sweep.is_at_start());
    assert!(sweep.paused.len() <= PASSED_MAX + PAGE as usize);
}

/// Deliveries that succeed and fail at random, pages that show what has just arrived, new announcements meanwhile.
#[test]
fn whatever_happens_each_key_keeps_its_order() {
    for seed in 0..30_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut roll = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % n
        };
        let mut now = Instant::now();
        let mut sweep = Sweep::new(now);
        let mut open: Vec<Announcement> = Vec::new();
        let mut flights: Vec<Lane> = Vec::new();
        let mut arrived: HashMap<String, i64> = HashMap::new();
        let (mut id, mut done) = (0, 0);
        for _ in 0..2000 {
            now += Duration::from_millis(50);
            match roll(4) {
                0 if id < 1500 => {
                    for _ in 0..roll(60) {
                        id += 1;
                        // Some keys have much more than others.
                        let keys = roll(30) + 1;
                        open.push(announcement(id, &format!("k{}", roll(keys))));
                    }
                }
                1 | 2 if !flights.is_empty() => {
                    let place = usize::try_from(roll(flights.len() as u64)).unwrap();
                    let lane = flights.swap_remove(place);
                    let fails_at = roll(40);
                    let mut failed = false;
                    for (index, one) in lane.announcements.iter().enumerate() {
                        if index as u64 == fails_at {
                            failed = true;
                            break;
                        }
                        let last = arrived.insert(lane.key.clone(), one.id.0);
                        assert!(last < Some(one.id.0), "seed {seed}: {} after {last:?}", one.id.0);
                        open.retain(|other| other.id != one.id);
                        done += 1;
                    }
                    if failed {
                        sweep.failed(lane.key, now + Duration::from_millis(roll(3000)));
                    } else {
                        sweep.ended(&lane.key, now);
                    }
                }
                _ => {
                    let (at, after) = sweep.next();
                    if at <= now {
                        let rows = open.iter().filter(|one| after.is_none_or(|after| one.id > after));
                        flights.extend(sweep.take(rows.take(PAGE as usize).cloned().collect(), now));
                    }
                }
            }
        }
        assert!(done > 300, "seed {seed}: only {done} of {id} arrived");
    }
}
