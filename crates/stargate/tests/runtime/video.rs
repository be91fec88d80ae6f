//! The videos that tests cut: made by ffmpeg itself, once for all test processes.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stargate_testkit::process::Program;

/// Forty seconds with sound, small, a key frame every two seconds.
pub(crate) fn plain() -> PathBuf {
    let picture = "testsrc2=size=160x120:rate=30:duration=40";
    let sound = "sine=frequency=440:duration=40";
    let codecs =
        ["-c:v", "libx264", "-preset", "ultrafast", "-g", "60", "-pix_fmt", "yuv420p", "-c:a", "aac"];
    made("plain", &[&["-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", sound], &codecs[..]].concat())
}

/// A little more than a second of noise: some ten megabytes, so that an upload has several parts.
pub(crate) fn heavy() -> PathBuf {
    let picture = "testsrc2=size=640x360:rate=25:duration=1.2,noise=alls=80:allf=t";
    let codecs = ["-c:v", "libx264", "-preset", "ultrafast", "-qp", "12", "-g", "25", "-pix_fmt", "yuv420p"];
    made("noise", &[&["-f", "lavfi", "-i", picture], &codecs[..]].concat())
}

/// A cut of `plain` that has to be encoded again, because it begins between two key frames.
pub(crate) fn encoded(seconds: f64) -> Value {
    json!({ "source": plain(), "start": 0.5, "end": 0.5 + seconds })
}

/// How long a video plays.
pub(crate) fn seconds(file: &Path) -> f64 {
    let show = ["-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0"];
    let answer = Program::new("ffprobe").answer(&[&show[..], &[file.to_str().unwrap()]].concat());
    answer.parse().unwrap_or_else(|error| panic!("ffprobe says {answer:?}: {error}"))
}

/// Test processes share the file; a half-made one never has its name.
fn made(name: &str, arguments: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    // Another build of the test may want another video.
    let mut hash = DefaultHasher::new();
    arguments.hash(&mut hash);
    let file = folder.join(format!("{name}-{:016x}.mp4", hash.finish()));
    if !file.exists() {
        let new = tempfile::Builder::new().suffix(".mp4").tempfile_in(folder).unwrap();
        let target = new.path().to_str().unwrap();
        Program::new("ffmpeg").answer(&[&["-v", "error", "-y"], arguments, &[target]].concat());
        // Another test process may have been faster; its file is as good.
        let _ = new.persist_noclobber(&file);
    }
    file
}
