//! The `stargate` program: command line, configuration, and the assembly of everything else.

mod argument;
mod assemble;
mod auditing;
mod candidate;
mod cli;
mod cmd;
mod config;
mod consent;
mod directing;
mod error_pages;
mod failure;
mod follow;
mod gateway;
mod hooks;
mod leading;
mod log;
mod mirroring;
mod node;
#[cfg(feature = "otel")]
mod otel;
#[cfg(not(feature = "otel"))]
#[path = "no_otel.rs"]
mod otel;
mod output;
mod payload;
mod program;
mod reach;
mod recording;
mod remote;
mod run;
mod service;
mod signals;
mod systemd;
#[cfg(feature = "temporal")]
mod temporal;
#[cfg(not(feature = "temporal"))]
#[path = "no_temporal.rs"]
mod temporal;
mod view;
mod vitals;

fn main() -> std::process::ExitCode {
    // rustls wants one crypto provider, chosen before the first use of TLS; a second choice is refused, harmlessly.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    run::main()
}
