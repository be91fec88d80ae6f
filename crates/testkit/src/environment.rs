//! What `cargo xtask` tells tests about the servers it has started.

/// The value of a variable. Without it the test fails and says how to get it: a suite is never skipped.
pub(crate) fn required(name: &str, missing: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| {
        panic!("{missing}: run `cargo xtask test`, or `cargo xtask services start` and export what it prints ({name})")
    })
}
