//! A journal that somebody else wrote, and secrets that must not get out.

use serde_json::json;

use crate::stage::{MAIN, Stage, WATERMARK};

#[test]
fn hostile_lines_end_as_dead_letters_and_the_good_ones_after_them_are_mirrored() {
    let stage = Stage::new();
    let oid = stage.chain(1).remove(0);
    let marker = stage.program.home().join("executed");
    let upload = format!("--receive-pack=touch {}", marker.display());
    let refs = [
        "--mirror",
        "--force",
        &upload,
        "+refs/kv/main",
        "refs/kv/main:refs/heads/main",
        "refs/kv/../heads/main",
        "refs/kv/a b",
        "refs/kv/a\nrefs/kv/b",
        "refs/kv/\u{1b}[2J",
        "refs/kv-mirror/main",
        "refs/heads/main",
        "HEAD",
        "",
    ];
    for (n, name) in refs.iter().enumerate() {
        stage.journal(&json!({ "entry_id": format!("bad-{n}"), "ref": name, "new_oid": oid }));
    }
    let oids = ["--all", "main", "+", &"0".repeat(40), &"f".repeat(40), &oid[..39], ""];
    for (n, bad) in oids.iter().enumerate() {
        stage.journal(&json!({ "entry_id": format!("oid-{n}"), "ref": "refs/kv/x", "new_oid": bad }));
    }
    stage.journal(&json!({ "entry_id": "ns", "ref": "refs/kv/x", "new_oid": oid, "ns": "../../heads/main" }));
    stage.scribble(b"\xff\xfe\x00not text\n[1,2,3]\nnull\n\n");
    stage.scribble(&[&vec![b'['; 100_000][..], b"\n"].concat());
    stage.push("good", MAIN, None, &oid);

    let done = stage.drain();
    assert_eq!(stage.status_of("good"), "completed", "{done}");
    stage.assert_mirrored(&oid);
    let there = stage.git(&stage.remote, &["for-each-ref", "--format=%(refname)"], b"");
    assert_eq!(there.lines().collect::<Vec<_>>(), [WATERMARK, MAIN], "only what is good got there");
    assert!(!marker.exists(), "an entry was executed");
    let letters = stage.letters();
    assert!(letters.len() >= refs.len() + oids.len() + 5, "{} letters: {done}", letters.len());
    // The terminal of whoever looks at them is not steered.
    let listed = stage.mirror(&["dead-letter", "list"]);
    assert!(
        listed.status.success() && !listed.stdout.contains(&0x1b),
        "{}",
        String::from_utf8_lossy(&listed.stdout)
    );
}

#[test]
fn a_token_is_in_no_file_no_answer_and_no_log() {
    const CANARY: &str = "canary-7f3a9";
    let stage = Stage::with_settings("token = \"${env:HUB_TOKEN}\"\npush_timeout = \"5s\"\n");
    stage.git(&stage.repo, &["remote", "set-url", "github-origin", "https://127.0.0.1:1/x.git"], b"");
    let Stage { program, repo, remote } = stage;
    let stage = Stage { program: program.with("HUB_TOKEN", CANARY), repo, remote };
    let oid = stage.chain(1).remove(0);
    stage.push("e1", MAIN, None, &oid);
    let mut said = Vec::new();
    for words in [&["run", "--once", "-vv"][..], &["status"], &["verify"], &["dead-letter", "list"]] {
        let output = stage.mirror(words);
        said.extend([output.stdout, output.stderr].concat());
    }
    said.extend(stage.program.run(&["config", "show", "--json"]).stdout);
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(said.contains("mirror.token") && said.contains("away"), "{said}");
    assert!(!said.contains(CANARY), "{said}");
    let mut dirs = vec![stage.program.home().to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => dirs.push(entry.path()),
                false => {
                    let content = String::from_utf8_lossy(&std::fs::read(entry.path()).unwrap()).into_owned();
                    assert!(!content.contains(CANARY), "{}", entry.path().display());
                }
            }
        }
    }
}
