//! Cuts with ffmpeg.

use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;

use stargate_base::ErrorClass;
use stargate_queue::handler::Failure;

use super::plan::{Part, Plan};
use super::probe::Media;
use super::tool::{Ended, Lines, Listener, Tools, Wish, file_address, input_options};
use super::{CLIP_FAILED, FFMPEG_MISSING, SOURCE_UNREADABLE};
use crate::execution::Reports;

/// The percentage that belongs to the finished cut; 100 is that of the job.
const PERCENT_MAX: f64 = 99.0;

/// What the host, not the file, is to blame for, as ffmpeg words it.
const TROUBLE: [&str; 3] =
    ["No space left on device", "Cannot allocate memory", "Resource temporarily unavailable"];
/// What the file is to blame for.
const BAD_INPUT: [&str; 7] = [
    "Invalid data found when processing input",
    "Error opening input",
    "Error while decoding",
    "Could not find codec parameters",
    "Decoder (codec",
    "Cannot determine format of input",
    "does not contain any stream",
];

/// Cuts a part of a file into the file `to`, which is replaced.
pub(super) async fn cut<R: Reports>(
    tools: Tools<'_>,
    ffmpeg: &Path,
    media: &Media,
    plan: Plan,
    (from, to): (&str, &str),
    reports: &R,
) -> Result<(), Failure> {
    let length = match plan {
        Plan::Copy { audio, .. } => audio,
        Plan::Encode(part) | Plan::EncodeFromBegin(part) => part.length,
    };
    let mut progress = Progress { lines: Lines::default(), length, reports };
    let args = arguments(media, plan, from, to);
    match tools.run(ffmpeg, &args, &mut progress).await? {
        Some(ended) if ended.status.success() => Ok(()),
        Some(ended) => Err(failed("ffmpeg", &ended)),
        // The listener never has enough.
        None => Ok(()),
    }
}

/// Whether the host is to blame for the end of a program.
pub(super) fn is_trouble(ended: &Ended) -> bool {
    ended.status.signal().is_some() || TROUBLE.iter().any(|text| says(ended, text))
}

/// Why a program failed.
pub(super) fn failed(program: &str, ended: &Ended) -> Failure {
    let how = match (ended.status.code(), ended.status.signal()) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    };
    let failure = if is_trouble(ended) {
        Failure::new(CLIP_FAILED, ErrorClass::RetryableTransient, format!("{program} {how}"))
    } else if says(ended, "Unknown encoder") {
        let message =
            format!("{program} cannot encode H.264 or AAC; install one that was built with libx264");
        Failure::new(FFMPEG_MISSING, ErrorClass::Fatal, message)
    } else if BAD_INPUT.iter().any(|text| says(ended, text)) {
        let message = format!("the source cannot be decoded: {program} {how}");
        Failure::new(SOURCE_UNREADABLE, ErrorClass::ValidationFailure, message)
    } else {
        Failure::new(CLIP_FAILED, ErrorClass::RetryableTransient, format!("{program} {how}"))
    };
    match &ended.stderr {
        Some(stderr) => failure.with_detail(stderr),
        None => failure,
    }
}

fn says(ended: &Ended, text: &str) -> bool {
    ended.stderr.as_deref().is_some_and(|stderr| stderr.contains(text))
}

fn arguments(media: &Media, plan: Plan, from: &str, to: &str) -> Vec<String> {
    let mut args = Arguments(Vec::new());
    args.add(&["-hide_banner", "-nostdin", "-loglevel", "error", "-nostats", "-progress", "pipe:1", "-y"]);
    match plan {
        Plan::Copy { from: start, video, audio } => args.copy(media, from, start, video, audio),
        Plan::Encode(part) => {
            // Seeking to the begin is not the same as beginning there: in FLV it loses the first sound.
            if part.start > 0.0 {
                args.add(&["-ss", &format!("{:.6}", part.start)]);
            }
            args.encode(media, from, part, &[]);
        }
        Plan::EncodeFromBegin(part) => {
            args.encode(media, from, part, &["-ss", &format!("{:.6}", part.start)])
        }
    }
    // Subtitles, data and chapters do not survive a cut in a useful form.
    args.add(&["-sn", "-dn", "-map_chapters", "-1", "-movflags", "+faststart", "-f", "mp4"]);
    args.0.push(file_address(to));
    args.0
}

struct Arguments(Vec<String>);

impl Arguments {
    fn add(&mut self, texts: &[&str]) {
        self.0.extend(texts.iter().map(|text| (*text).to_owned()));
    }

    fn input(&mut self, path: &str, start: f64, length: f64) {
        self.add(&input_options());
        self.add(&["-ss", &format!("{start:.6}"), "-t", &format!("{length:.6}"), "-i", &file_address(path)]);
    }

    /// Video and sound are two inputs of the same file, because they end at different times: the one by the time
    /// of decoding, the other by the time of playing.
    fn copy(&mut self, media: &Media, path: &str, start: f64, video_length: f64, audio_length: f64) {
        let mut inputs = 0;
        let mut maps = Vec::new();
        if let Some(video) = &media.video {
            self.input(path, start, video_length);
            maps.push(format!("{inputs}:{}", video.index));
            inputs += 1;
        }
        if let Some(audio) = &media.audio {
            self.input(path, start, audio_length);
            maps.push(format!("{inputs}:{}", audio.index));
        }
        for map in &maps {
            self.add(&["-map", map]);
        }
        // Packets before the key frame are dropped rather than kept as a hidden lead.
        self.add(&["-c", "copy", "-copypriorss", "0"]);
        if media.video.as_ref().is_some_and(|video| video.codec == "hevc") {
            // The tag by which Apple's players know it.
            self.add(&["-tag:v", "hvc1"]);
        }
    }

    /// Starts at the exact frame: what lies between it and where seeking lands is decoded and dropped.
    fn encode(&mut self, media: &Media, path: &str, part: Part, after: &[&str]) {
        self.add(&input_options());
        self.add(&["-i", &file_address(path)]);
        self.add(after);
        self.add(&["-t", &format!("{:.6}", part.length)]);
        if let Some(video) = &media.video {
            self.add(&["-map", &format!("0:{}", video.index)]);
            self.add(&["-c:v", "libx264", "-preset", "veryfast", "-crf", "20", "-pix_fmt", "yuv420p"]);
            if !video.is_even {
                self.add(&["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]);
            }
        }
        if let Some(audio) = &media.audio {
            self.add(&["-map", &format!("0:{}", audio.index), "-c:a", "aac", "-b:a", "160k"]);
        }
    }
}

/// Turns ffmpeg's reports into percentages.
struct Progress<'a, R> {
    lines: Lines,
    length: f64,
    reports: &'a R,
}

impl<R: Reports> Listener for Progress<'_, R> {
    async fn heard(&mut self, bytes: &[u8]) -> Wish {
        let lines = self.lines.split(bytes);
        if let Some(percent) = lines.iter().rev().find_map(|line| percent(line, self.length)) {
            self.reports.progress(percent).await;
        }
        Wish::Continue
    }
}

/// `out_time_us=1234567`: how much of the output is written.
fn percent(line: &str, length: f64) -> Option<u8> {
    let micros: f64 = line.strip_prefix("out_time_us=")?.parse().ok()?;
    let percent = (micros / 1e6 / length * 100.0).clamp(0.0, PERCENT_MAX);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 99, as clamped"
    )]
    percent.is_finite().then_some(percent as u8)
}

#[cfg(test)]
mod tests {
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn percentages_are_of_the_clip_and_stay_below_100() {
        assert_eq!(percent("out_time_us=500000", 2.0), Some(25));
        assert_eq!(percent("out_time_us=9000000", 2.0), Some(99));
        assert_eq!(percent("out_time_us=-9223372036854775807", 2.0), Some(0));
        for line in ["out_time_us=N/A", "out_time=00:00:01", "progress=end", ""] {
            assert_eq!(percent(line, 2.0), None, "{line}");
        }
    }

    fn code(raw: i32, stderr: &str) -> (String, ErrorClass) {
        let ended = Ended { status: ExitStatus::from_raw(raw), stderr: Some(stderr.to_owned()) };
        let error = failed("ffmpeg", &ended).error;
        assert_eq!(error.detail.as_deref(), Some(stderr));
        (error.code, error.class)
    }

    #[test]
    fn failures_are_told_apart_by_who_is_to_blame() {
        let exit_1 = 1 << 8;
        for (raw, stderr, expected) in [
            (9, "", (CLIP_FAILED, ErrorClass::RetryableTransient)),
            (
                exit_1,
                "av_interleaved_write_frame(): No space left on device",
                (CLIP_FAILED, ErrorClass::RetryableTransient),
            ),
            (
                exit_1,
                "x: Invalid data found when processing input",
                (SOURCE_UNREADABLE, ErrorClass::ValidationFailure),
            ),
            (exit_1, "Unknown encoder 'libx264'", (FFMPEG_MISSING, ErrorClass::Fatal)),
            (exit_1, "something new", (CLIP_FAILED, ErrorClass::RetryableTransient)),
        ] {
            assert_eq!(code(raw, stderr), (expected.0.to_owned(), expected.1), "{stderr}");
        }
    }
}
