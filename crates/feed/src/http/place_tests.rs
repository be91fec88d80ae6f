//! What comes after which answer, in each way of paging.

use serde_json::json;

use super::*;

fn page_numbers() -> Pagination {
    Pagination::Page { param: "page".to_owned(), start: 1 }
}

fn offsets() -> Pagination {
    Pagination::Offset { param: "offset".to_owned() }
}

fn cursors() -> Pagination {
    Pagination::Cursor { param: "after".to_owned(), next: "/next".to_owned() }
}

/// Goes through answers, each by way of the written pointer. The pointers, or what was odd.
fn walk(pagination: &Pagination, answers: &[Answer]) -> Result<Vec<Pointer>, Odd> {
    let (mut pointer, mut pointers) = (Pointer::Null, Vec::new());
    for answer in answers {
        let mut place = Place::read(&pointer, pagination).unwrap();
        place.ask(100, pagination);
        let onward = place.onward(answer, 1)?;
        pointer = onward.place.write();
        pointers.push(if onward.is_last { json!({ "end": pointer }) } else { pointer.clone() });
    }
    Ok(pointers)
}

fn counts(counts: &[u64]) -> Vec<Answer> {
    counts.iter().map(|count| Answer { count: *count, ..Answer::default() }).collect()
}

fn of_total(pairs: &[(u64, u64)]) -> Vec<Answer> {
    pairs.iter().map(|(count, total)| Answer { count: *count, next: None, total: Some(*total) }).collect()
}

fn tokens(pairs: &[(u64, &str)], total: Option<u64>) -> Vec<Answer> {
    pairs
        .iter()
        .map(|(count, next)| Answer { count: *count, next: Some((*next).to_owned()), total })
        .collect()
}

#[test]
fn offsets_rise_by_what_came_and_end_with_an_empty_page() {
    let pointers = walk(&offsets(), &counts(&[100, 40, 100, 0])).unwrap();
    let expected = [
        json!({"offset": 100}),
        json!({"offset": 140}),
        json!({"offset": 240}),
        json!({"end": {"offset": 240}}),
    ];
    assert_eq!(pointers, expected, "a short page is no end");
}

#[test]
fn a_total_ends_offsets_and_pages_without_an_empty_page() {
    let pointers = walk(&offsets(), &of_total(&[(100, 150), (50, 150)])).unwrap();
    assert_eq!(pointers[1], json!({"end": {"offset": 150, "total": 150}}));
    let pointers = walk(&page_numbers(), &of_total(&[(100, 200), (100, 200)])).unwrap();
    assert_eq!(pointers[1]["end"]["page"], 3, "a full page needs not be read again");
    let pointers = walk(&page_numbers(), &of_total(&[(100, 150), (50, 150)])).unwrap();
    assert_eq!((&pointers[1]["end"]["page"], &pointers[1]["end"]["seen"]), (&json!(2), &json!(100)));
}

#[test]
fn an_end_before_all_records_is_incomplete() {
    let odd = |seen, total| Err(Odd::Incomplete { seen, total });
    assert_eq!(walk(&offsets(), &of_total(&[(100, 150), (40, 150), (0, 150)])), odd(140, 150));
    assert_eq!(walk(&page_numbers(), &of_total(&[(100, 150), (0, 150)])), odd(100, 150));
    assert_eq!(walk(&cursors(), &tokens(&[(100, "a"), (40, "")], Some(150))), odd(140, 150));
    assert_eq!(walk(&Pagination::None, &of_total(&[(3, 4)])), odd(3, 4));
    assert!(walk(&cursors(), &tokens(&[(100, "a"), (50, "")], Some(150))).is_ok());
}

#[test]
fn a_total_that_shrinks_may_have_moved_records_over_a_border() {
    let answers = of_total(&[(100, 300), (100, 299)]);
    assert!(matches!(walk(&offsets(), &answers), Err(Odd::Shifted(_))));
    assert!(matches!(walk(&page_numbers(), &answers), Err(Odd::Shifted(_))));
    assert!(walk(&offsets(), &of_total(&[(100, 300), (100, 301)])).is_ok(), "growth passes nothing over");
}

#[test]
fn pages_have_one_length_but_for_the_last() {
    let pointers = walk(&page_numbers(), &counts(&[50, 50, 20, 0])).unwrap();
    assert_eq!(pointers[0], json!({"page": 2, "size": 100, "full": 50, "before": 50, "seen": 50}));
    assert_eq!(pointers[3]["end"], json!({"page": 3, "size": 100, "full": 50, "seen": 100}));
    for moved in [[50, 60, 0], [50, 40, 10], [50, 40, 50]] {
        assert!(matches!(walk(&page_numbers(), &counts(&moved)), Err(Odd::Shifted(_))), "{moved:?}");
    }
}

#[test]
fn what_is_added_to_the_last_page_is_found_by_a_later_run() {
    let pointers = walk(&page_numbers(), &counts(&[3, 0])).unwrap();
    assert_eq!(pointers[1]["end"], json!({"page": 1, "size": 100, "seen": 0}));
    let pagination = page_numbers();
    let mut place = Place::read(&pointers[1]["end"], &pagination).unwrap();
    assert_eq!(place.ask(7, &pagination), (100, Ask::Param("page", "1".to_owned())), "the size stays");
    let more = place.onward(&Answer { count: 5, ..Answer::default() }, 1).unwrap();
    assert!(!more.is_last, "the page may grow");
    let empty = walk(&page_numbers(), &counts(&[0])).unwrap();
    assert_eq!(empty[0]["end"]["page"], 1);
    let pointers = walk(&cursors(), &tokens(&[(9, "a"), (5, "")], None)).unwrap();
    assert_eq!(pointers, [json!({"next": "a", "seen": 9}), json!({"end": {"next": "a", "seen": 9}})]);
}

#[test]
fn a_cursor_that_leads_to_itself_is_a_loop_and_its_value_is_not_told() {
    let looped = walk(&cursors(), &tokens(&[(9, "secret"), (9, "secret")], None));
    assert_eq!(looped, Err(Odd::Loop { bytes: 6 }));
}

#[test]
fn a_pointer_of_another_kind_is_none() {
    for pointer in [json!(17), json!({"offset": 3, "next": "x"}), json!("x"), json!({"bookmarks": {}})] {
        for pagination in [page_numbers(), offsets(), cursors(), Pagination::Link, Pagination::None] {
            assert_eq!(Place::read(&pointer, &pagination), None, "{pointer} {pagination:?}");
        }
    }
    assert_eq!(Place::read(&json!({"offset": 3}), &cursors()), None);
    assert_eq!(Place::read(&json!({"next": "x"}), &offsets()), None);
}
