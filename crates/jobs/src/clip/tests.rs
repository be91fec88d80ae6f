//! Real ffmpeg on real files, without an engine.

mod cutting;
mod fixture;
mod hostile;
mod publishing;
