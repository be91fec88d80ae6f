//! What is generated: the reference page, completions, manual pages.

use crate::stargate;

#[test]
fn the_reference_pages_are_up_to_date() {
    for page in ["cli", "config", "metrics"] {
        let generated = stargate().answer(&["docs", page]);
        let path = format!("{}/../../docs/{page}.md", env!("CARGO_MANIFEST_DIR"));
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            generated.trim_end() == written.trim_end(),
            "docs/{page}.md is out of date; write it anew: cargo run -- docs {page} > docs/{page}.md"
        );
    }
}

#[test]
fn completions_and_manual_pages_are_written() {
    let program = stargate();
    for shell in ["bash", "zsh", "fish"] {
        assert!(program.answer(&["completions", shell]).contains("enqueue"), "{shell}");
    }
    assert!(program.answer(&["man"]).contains(".TH stargate"));
    let dir = program.home().join("man");
    program.answer(&["man", "--dir", dir.to_str().unwrap()]);
    assert!(dir.join("stargate-job-enqueue.1").is_file());
}

#[test]
fn help_has_examples() {
    let program = stargate();
    for command in [
        &["--help"][..],
        &["job", "enqueue", "--help"],
        &["job", "list", "--help"],
        &["limit", "set", "--help"],
    ] {
        let help = program.answer(command);
        assert!(help.contains("xamples:") || help.contains("Start here:"), "{command:?}: {help}");
    }
}
