//! Looks into a recording with ffprobe.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use stargate_base::ErrorClass;
use stargate_queue::handler::Failure;

use super::CLIP_FAILED;
use super::tool::{Collected, Ended, Lines, Listener, Tools, Wish, file_address, input_options};

/// A description of a thousand streams fits.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// A look takes well under a second; a file on a slow network share some.
const LOOK_MAX: Duration = Duration::from_secs(60);
/// It reads all of the part, which may be much.
const PACKETS_LOOK_MAX: Duration = Duration::from_secs(20);
/// More packets than the longest clip has. Beyond that the exact way is taken.
const PACKETS_MAX: usize = 100_000;
/// Frames may come in another order than they are shown; so much before and after belongs to the picture.
const AROUND_SEC: f64 = 1.0;

/// What is known of a recording.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Media {
    /// Names of the container, e.g. `mov,mp4,m4a,3gp,3g2,mj2`.
    pub(super) format: String,
    /// Its length in seconds; not every container says, and what is a guess is left out.
    pub(super) duration: Option<f64>,
    /// The time stamp it begins with.
    pub(super) start: f64,
    pub(super) video: Option<Video>,
    pub(super) audio: Option<Audio>,
}

/// The stream of pictures.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Video {
    pub(super) index: u32,
    pub(super) codec: String,
    /// 4:2:0 needs an even width and height.
    pub(super) is_even: bool,
    /// How long a picture is shown, in seconds.
    pub(super) frame: f64,
    pub(super) span: Option<(f64, f64)>,
}

/// The stream of sound.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Audio {
    pub(super) index: u32,
    pub(super) codec: String,
    /// The longest packet of common codecs at its sample rate, in seconds.
    pub(super) frame: f64,
    pub(super) span: Option<(f64, f64)>,
}

/// A frame as it lies in the file.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Packet {
    /// When it is shown.
    pub(super) pts: f64,
    /// When it is decoded.
    pub(super) dts: Option<f64>,
    pub(super) is_key: bool,
}

/// Why nothing is known.
#[derive(Debug)]
pub(super) enum ProbeError {
    /// ffprobe refuses the file; what it said.
    Unreadable(Option<String>),
    /// It is not the file's fault.
    Failed(Failure),
}

impl From<Failure> for ProbeError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Looks at a file.
pub(super) async fn probe(tools: Tools<'_>, ffprobe: &Path, path: &str) -> Result<Media, ProbeError> {
    let entries = "format=format_name,duration,start_time\
        :stream=index,codec_type,codec_name,width,height,avg_frame_rate,r_frame_rate,sample_rate,duration,start_time\
        :stream_disposition=attached_pic";
    let args = arguments(&["-print_format", "json", "-show_entries", entries], path);
    let mut collected = Collected::new(OUTPUT_BYTES_MAX);
    let ended = look(tools, ffprobe, &args, &mut collected).await?;
    let Some(ended) = ended else {
        return Err(ProbeError::Unreadable(Some("ffprobe's answer is too long".to_owned())));
    };
    accept(&ended)?;
    match serde_json::from_slice::<Answer>(&collected.bytes) {
        Ok(answer) => Ok(answer.into_media()),
        Err(error) => {
            let message = format!("ffprobe's answer cannot be read: {error}");
            Err(ProbeError::Unreadable(Some(message)))
        }
    }
}

/// The packets of the video between two time stamps, in the order of the file. Nothing if there are too many, or if
/// it takes too long: then encoding is as good.
pub(super) async fn packets(
    tools: Tools<'_>,
    ffprobe: &Path,
    path: &str,
    (from, to): (f64, f64),
) -> Result<Vec<Packet>, ProbeError> {
    let (from, to) = (from - AROUND_SEC, to + AROUND_SEC);
    // Without a begin it starts with the first packet.
    let interval = if from > 0.0 { format!("{from:.6}%{to:.6}") } else { format!("%{to:.6}") };
    let options = [
        // The first stream of pictures that is not a cover, as in `Media`.
        "-select_streams",
        "V:0",
        "-show_entries",
        "packet=pts_time,dts_time,flags",
        "-print_format",
        "compact=p=0:nk=1",
        "-read_intervals",
        &interval,
    ];
    let mut packets = Packets { lines: Lines::default(), since: from, found: Vec::new() };
    let args = arguments(&options, path);
    match tokio::time::timeout(PACKETS_LOOK_MAX, tools.run(ffprobe, &args, &mut packets)).await {
        Ok(ended) => match ended? {
            Some(ended) => accept(&ended).map(|()| packets.found),
            None => Ok(Vec::new()),
        },
        Err(_) => Ok(Vec::new()),
    }
}

fn arguments(options: &[&str], path: &str) -> Vec<String> {
    let (before, input) = (["-hide_banner", "-loglevel", "error"], input_options());
    let all = before.iter().chain(options).chain(&input).chain(&["-i"]);
    all.map(|text| (*text).to_owned()).chain([file_address(path)]).collect()
}

async fn look(
    tools: Tools<'_>,
    ffprobe: &Path,
    args: &[String],
    listener: &mut impl Listener,
) -> Result<Option<Ended>, Failure> {
    let look = tokio::time::timeout(LOOK_MAX, tools.run(ffprobe, args, listener));
    look.await.unwrap_or_else(|_| {
        let message = format!("ffprobe did not end within {} s", LOOK_MAX.as_secs());
        Err(Failure::new(CLIP_FAILED, ErrorClass::RetryableTransient, message))
    })
}

fn accept(ended: &Ended) -> Result<(), ProbeError> {
    if ended.status.success() {
        return Ok(());
    }
    if super::cut::is_trouble(ended) {
        return Err(ProbeError::Failed(super::cut::failed("ffprobe", ended)));
    }
    Err(ProbeError::Unreadable(ended.stderr.clone()))
}

/// Reads lines such as `1.040000|1.000000|K_`.
struct Packets {
    lines: Lines,
    /// Those before are of no use, and there may be many: the search begins with a key frame.
    since: f64,
    found: Vec<Packet>,
}

impl Listener for Packets {
    async fn heard(&mut self, bytes: &[u8]) -> Wish {
        let lines = self.lines.split(bytes);
        self.found.extend(lines.iter().filter_map(|line| packet(line)).filter(|p| p.pts >= self.since));
        if self.found.len() > PACKETS_MAX { Wish::Enough } else { Wish::Continue }
    }
}

fn packet(line: &str) -> Option<Packet> {
    let mut fields = line.split('|');
    let (pts, dts, flags) = (fields.next()?, fields.next()?, fields.next()?);
    Some(Packet { pts: pts.parse().ok()?, dts: dts.parse().ok(), is_key: flags.starts_with('K') })
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    streams: Vec<Stream>,
    format: Format,
}

#[derive(Deserialize)]
struct Format {
    format_name: String,
    duration: Option<String>,
    start_time: Option<String>,
}

#[derive(Deserialize)]
struct Stream {
    index: u32,
    codec_type: Option<String>,
    codec_name: Option<String>,
    width: Option<u32>,
    height: Option<u32>,
    avg_frame_rate: Option<String>,
    r_frame_rate: Option<String>,
    sample_rate: Option<String>,
    duration: Option<String>,
    start_time: Option<String>,
    #[serde(default)]
    disposition: Disposition,
}

#[derive(Default, Deserialize)]
struct Disposition {
    #[serde(default)]
    attached_pic: u8,
}

impl Answer {
    fn into_media(self) -> Media {
        let kind = |name: &'static str| {
            move |stream: &&Stream| {
                // The cover of an album is a stream of pictures, too.
                stream.codec_type.as_deref() == Some(name) && stream.disposition.attached_pic == 0
            }
        };
        // Streams without packets tell no duration; their length is guessed from the size of the file.
        let is_guess = ["aac", "ac3", "eac3"].contains(&self.format.format_name.as_str());
        let duration = number(self.format.duration.as_deref()).filter(|length| *length > 0.0 && !is_guess);
        Media {
            duration,
            start: number(self.format.start_time.as_deref()).unwrap_or(0.0),
            video: self.streams.iter().find(kind("video")).map(Stream::to_video),
            audio: self.streams.iter().find(kind("audio")).map(Stream::to_audio),
            format: self.format.format_name,
        }
    }
}

impl Stream {
    fn to_video(&self) -> Video {
        let rate =
            fraction(self.avg_frame_rate.as_deref()).or_else(|| fraction(self.r_frame_rate.as_deref()));
        let is_even = |length: Option<u32>| length.unwrap_or(0).is_multiple_of(2);
        Video {
            index: self.index,
            codec: self.codec_name.clone().unwrap_or_default(),
            is_even: is_even(self.width) && is_even(self.height),
            frame: 1.0 / rate.unwrap_or(25.0).clamp(1.0, 1000.0),
            span: self.span(),
        }
    }

    fn to_audio(&self) -> Audio {
        let rate = number(self.sample_rate.as_deref()).unwrap_or(44_100.0).clamp(8000.0, 768_000.0);
        Audio {
            index: self.index,
            codec: self.codec_name.clone().unwrap_or_default(),
            frame: 2048.0 / rate,
            span: self.span(),
        }
    }

    /// Its first and last time stamp.
    fn span(&self) -> Option<(f64, f64)> {
        let start = number(self.start_time.as_deref())?;
        Some((start, start + number(self.duration.as_deref())?))
    }
}

fn number(text: Option<&str>) -> Option<f64> {
    text?.parse().ok().filter(|number: &f64| number.is_finite())
}

/// `30000/1001`.
fn fraction(text: Option<&str>) -> Option<f64> {
    let (above, below) = text?.split_once('/')?;
    let value = number(Some(above))? / number(Some(below))?;
    Some(value).filter(|value| value.is_finite() && *value > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn covers_of_albums_are_no_video_and_guesses_no_duration() {
        let answer = r#"{"streams":[
            {"index":0,"codec_type":"video","codec_name":"mjpeg","disposition":{"attached_pic":1}},
            {"index":1,"codec_type":"audio","codec_name":"aac","sample_rate":"48000"}],
            "format":{"format_name":"aac","duration":"7.5"}}"#;
        let media = serde_json::from_str::<Answer>(answer).unwrap().into_media();
        assert_eq!((media.video, media.duration), (None, None));
        assert_eq!(media.audio.unwrap().index, 1);
    }

    #[test]
    fn rates_are_fractions_and_strange_ones_are_bounded() {
        for (rate, frame) in [("25/1", 0.04), ("30000/1001", 1001.0 / 30000.0), ("0/0", 0.04), ("1/90", 1.0)]
        {
            let stream = format!(
                r#"{{"streams":[{{"index":0,"codec_type":"video","avg_frame_rate":"{rate}"}}],"format":{{"format_name":"x"}}}}"#
            );
            let media = serde_json::from_str::<Answer>(&stream).unwrap().into_media();
            assert!((media.video.unwrap().frame - frame).abs() < 1e-9, "{rate}");
        }
    }

    #[test]
    fn packets_are_read_from_lines() {
        let read = packet("1.040000|1.000000|K_").unwrap();
        assert_eq!((read.pts, read.dts, read.is_key), (1.04, Some(1.0), true));
        assert_eq!(packet("3.4|N/A|__|  ").unwrap().dts, None);
        assert_eq!(packet("N/A|1.0|K_"), None);
        assert_eq!(packet(""), None);
    }
}
