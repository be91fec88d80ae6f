//! What is in the program: one TLS provider, and Temporal only with its feature.

use super::Problem;

/// rustls cannot choose between two providers and panics at the first connection.
const OTHER_TLS: [&str; 3] = ["ring", "openssl-sys", "native-tls"];
/// What the feature `temporal` brings.
const TEMPORAL: [&str; 3] = ["temporalio-sdk", "temporalio-client", "tonic"];
/// Builds protobuf files with a program that nobody has to install.
const PROTOBUF_COMPILER: &str = "protox";

/// Checks the outputs of `cargo tree --prefix none` for the program as it is, and without its features.
pub(super) fn check(whole: &str, without_features: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut say = |message: String| problems.push(Problem::of("stargate", message));
    for name in OTHER_TLS.iter().filter(|name| has(whole, name)) {
        say(format!("has {name} in it: rustls runs on aws-lc-rs alone"));
    }
    for name in ["aws-lc-rs", PROTOBUF_COMPILER].iter().chain(&TEMPORAL).filter(|name| !has(whole, name)) {
        say(format!("has no {name} in it any more: this check looks for the wrong crates"));
    }
    for name in TEMPORAL.iter().filter(|name| has(without_features, name)) {
        say(format!("has {name} in it without the feature temporal"));
    }
    problems
}

/// Whether a crate is in a tree.
fn has(tree: &str, name: &str) -> bool {
    tree.lines().any(|line| line.split(' ').next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str =
        "stargate v0.1.0\naws-lc-rs v1\nprotox v0.9\ntemporalio-sdk v1\ntemporalio-client v1\ntonic v0.14";

    fn problems(whole: &str, without: &str) -> Vec<String> {
        check(whole, without).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_second_provider_of_tls_is_found() {
        assert_eq!(problems(WHOLE, "stargate v0.1.0"), [""; 0]);
        let both = format!("{WHOLE}\nring v0.17.14 (*)");
        assert_eq!(problems(&both, ""), ["stargate: has ring in it: rustls runs on aws-lc-rs alone"]);
    }

    #[test]
    fn what_a_feature_brings_is_not_there_without_it() {
        assert_eq!(problems(WHOLE, WHOLE).len(), TEMPORAL.len());
        assert_eq!(problems("stargate v0.1.0", "").len(), TEMPORAL.len() + 2, "the check would find nothing");
    }
}
