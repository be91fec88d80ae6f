//! `stargate bundle`: everything a support engineer would ask for, in one archive and without secrets.

mod gather;
mod scrub;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::failure::{Failure, Result};
use crate::output;
use crate::run::App;
use gather::Part;
use scrub::Scrubber;

/// The largest part; what is longer is cut at its beginning, because the end of a log is what matters.
const PART_BYTES_MAX: usize = 4 << 20;
/// What tells what is in it.
const MANIFEST: &str = "MANIFEST.txt";

/// `bundle`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate bundle
  stargate bundle -o case-17.tar.gz --log-file /var/log/stargate.log
  stargate bundle --url https://stargate.example

Holds what the doctor finds, the settings, versions, queues, workers, limits, schedules, failures,
the last failed jobs without payload, leadership, mirrors, who changed what, health and metrics.
Secrets are taken out; payloads, results and the output of programs are left out unless --payloads
is given. MANIFEST.txt lists what is in it and what could not be had. Look before you send it:
  tar -xzOf FILE | less")]
pub(crate) struct Bundle {
    /// Where to write it; - for standard output [default: stargate-bundle-TIME.tar.gz]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// With payloads, results and the output of programs; values under telling names are taken out
    #[arg(long)]
    payloads: bool,
    /// Add the last lines of this log
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
}

impl Bundle {
    /// Runs the command.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let scrubber = scrubber(app);
        let mut parts = gather::all(app, self.payloads).await;
        if let Some(path) = &self.log_file {
            parts.push(gather::log(path));
        }
        for part in &mut parts {
            part.scrub(&scrubber);
        }
        let now = stargate_base::clock::wall();
        let name = now.strftime("stargate-bundle-%Y%m%d-%H%M%S").to_string();
        let archive = archive(&name, &parts, now.as_second())
            .map_err(|error| Failure::io("cannot make the archive", &error))?;
        let path = self.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
        if path == Path::new("-") {
            app.out.raw(&archive);
            return Ok(());
        }
        write(&path, &archive)?;
        tell(app, &path, archive.len(), &parts);
        Ok(())
    }
}

/// What is secret on this machine: what its environment and the configuration file hold under telling names.
fn scrubber(app: &App) -> Scrubber {
    let text = app.settings.file.as_ref().and_then(|path| std::fs::read_to_string(path).ok());
    let table = text.and_then(|text| toml::from_str::<toml::Table>(&text).ok());
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Scrubber::new(environment, table.as_ref())
}

/// Others on this machine need not read it.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let cannot = |error: std::io::Error| Failure::io(format!("cannot write {}", path.display()), &error);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(path).map_err(cannot)?;
    file.write_all(bytes).map_err(cannot)
}

fn archive(name: &str, parts: &[Part], mtime: i64) -> std::io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
    let mut add = |file: &str, content: &[u8]| {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(mtime).unwrap_or_default());
        builder.append_data(&mut header, format!("{name}/{file}"), content)
    };
    add(MANIFEST, manifest(parts).as_bytes())?;
    for part in parts {
        if let Ok(content) = &part.content {
            add(part.file, tail(content).as_bytes())?;
        }
    }
    builder.into_inner()?.finish()
}

/// The end of a text that is too long.
fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(PART_BYTES_MAX);
    &text[text.ceil_char_boundary(from)..]
}

fn manifest(parts: &[Part]) -> String {
    let mut text = String::new();
    for part in parts {
        let about = match &part.content {
            Ok(_) => part.about.to_owned(),
            Err(problem) => format!("{}; could not be had: {problem}", part.about),
        };
        text.push_str(&format!("{:<20} {about}\n", part.file));
    }
    text
}

fn tell(app: &App, path: &Path, bytes: usize, parts: &[Part]) {
    if app.out.json {
        let parts = parts.iter().map(|part| {
            serde_json::json!({ "file": part.file, "about": part.about, "problem": part.content.as_ref().err() })
        });
        app.out.json(&serde_json::json!({
            "path": path, "bytes": bytes, "parts": parts.collect::<Vec<_>>(),
        }));
        return;
    }
    for part in parts {
        if let Err(problem) = &part.content {
            app.out.note(output::dim(format!("without {}: {problem}", part.file)));
        }
    }
    app.out.line(path.display());
    let size = crate::config::size::words(bytes as u64);
    app.out
        .note(output::dim(format!("{size}; look before you send it: tar -xzOf {} | less", path.display())));
}
