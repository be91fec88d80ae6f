//! `stargate directive sample`: a local API with made-up items, and the directive that reads it.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use stargate_base::Tasks;
use stargate_web::sample::{self, ITEMS_MAX};
use tokio::net::TcpListener;

use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::run::App;
use crate::signals;

/// The directive's name.
pub(crate) const NAME: &str = "sample";
const FILE: &str = "sample.toml";
const DIRECTIVE: &str = include_str!("../../../demo/directives/sample.toml");
const SCHEMA_FILE: &str = "sample.schema.json";
const SCHEMA: &str = include_str!("../../../demo/directives/sample.schema.json");
/// Where the directive expects the API, and the API listens unless told otherwise.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);

/// `directive sample`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  stargate directive sample --write directives
  stargate directive run sample
  curl -X PATCH --json '{\"state\":\"closed\"}' http://127.0.0.1:9000/items/7

Pages: /items?after=ID&limit=N. Changes are kept in memory; Ctrl-C ends it.")]
pub(crate) struct Sample {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS", default_value_t = ADDRESS)]
    listen: SocketAddr,
    /// How many items there are
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(..=ITEMS_MAX))]
    items: u64,
    /// How many of them lack their title, and do not fit the schema
    #[arg(long, value_name = "N", default_value_t = 1)]
    bad: u64,
    /// Write the directive and its schema into this directory, instead of printing it
    #[arg(long, value_name = "DIR")]
    write: Option<PathBuf>,
}

impl Sample {
    /// Serves until told to stop.
    pub(crate) async fn run(&self, app: &App) -> Result<()> {
        let tasks = Tasks::new();
        let stop = signals::stop_token(&tasks)?;
        let cannot = |error| {
            Failure::io(format!("cannot listen on {}", self.listen), &error)
                .help("choose another address with --listen 127.0.0.1:PORT; port 0 takes a free one")
        };
        let listener = TcpListener::bind(self.listen).await.map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?;
        match &self.write {
            Some(dir) => write(dir, address, app.out)?,
            None => app.out.raw(text(address).as_bytes()),
        }
        app.out.note(format!("{} items at http://{address}/items; Ctrl-C ends it", self.items));
        sample::serve(listener, sample::Sample::new(self.items, self.bad), stop).await;
        tasks.join().await;
        Ok(())
    }
}

/// The directive for an API at this address.
fn text(address: SocketAddr) -> String {
    DIRECTIVE.replace(&ADDRESS.to_string(), &address.to_string())
}

/// Writes the directive and its schema. A file that is there stays as it is: somebody may have changed it.
pub(crate) fn write(dir: &Path, address: SocketAddr, out: Output) -> Result<()> {
    std::fs::create_dir_all(dir)
        .map_err(|error| Failure::io(format!("cannot make the directory {}", dir.display()), &error))?;
    for (name, text) in [(FILE, text(address)), (SCHEMA_FILE, SCHEMA.to_owned())] {
        let path = dir.join(name);
        let written = std::fs::File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        match written {
            Ok(()) => out.note(format!("wrote {}", path.display())),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                out.note(format!("{} is there already and stays as it is", path.display()));
            }
            Err(error) => return Err(Failure::io(format!("cannot write {}", path.display()), &error)),
        }
    }
    Ok(())
}
