//! Leadership with real locks, and in simulation.
mod file;
mod nodes;
mod redis;
mod service;
mod simulation;
