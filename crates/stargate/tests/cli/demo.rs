//! The demo runs to its end with nothing but the binary.

use crate::{code, json, stargate, stderr};

#[test]
fn the_demo_ends_with_every_outcome_as_it_should_be() {
    let outcomes = json(&stargate(), &["demo", "--once", "--json"]);
    let outcomes = outcomes.as_array().unwrap();
    assert_eq!(outcomes.len(), 8);
    assert!(outcomes.iter().all(|outcome| outcome["ok"] == true), "{outcomes:#?}");
}

#[test]
fn the_benchmark_measures_in_a_store_of_its_own() {
    let program = stargate();
    let report = json(&program, &["bench", "queue", "-n", "200", "--samples", "5", "--json"]);
    assert!(report["drain_per_second"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(
        json(&program, &["job", "list", "--json"]),
        serde_json::json!([]),
        "the user's store is untouched"
    );
    let output = program.run(&["bench", "queue", "-n", "0"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
}
