//! Makes the pages of `docs/errors` part of the program, so that `stargate help CODE` needs nothing beside it.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let dir = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../docs/errors").canonicalize()?;
    println!("cargo::rerun-if-changed={}", dir.display());
    let mut pages = Vec::new();
    for entry in fs::read_dir(&dir)? {
        let path = entry?.path();
        let code = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned();
        if path.extension().is_some_and(|extension| extension == "md") && code != "README" {
            pages.push((code, path));
        }
    }
    pages.sort();
    let mut source = String::from("&[\n");
    for (code, path) in pages {
        writeln!(source, "    ({code:?}, include_str!({path:?})),")?;
    }
    source.push_str("]\n");
    fs::write(Path::new(&env::var("OUT_DIR")?).join("error_pages.rs"), source)?;
    Ok(())
}
