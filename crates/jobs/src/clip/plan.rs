//! How to cut: by copying the streams, which takes no time and loses nothing, or by encoding them anew.
//!
//! A copy can begin only with a key frame, and end only where no later frame is shown before an earlier one (frames
//! lie in the file in the order in which they are decoded). If such places are within two frames of what was asked
//! for, and the codecs are at home in MP4, the streams are copied. Otherwise they are encoded, which is exact.

use super::probe::{Media, Packet};

/// Codecs that players expect in an MP4 file. VP9 and Opus are allowed there too, but many cannot play them.
const VIDEO_CODECS: [&str; 4] = ["h264", "hevc", "av1", "mpeg4"];
const AUDIO_CODECS: [&str; 5] = ["aac", "mp3", "ac3", "eac3", "alac"];

/// How far the end of a copy may lie from what was asked for, in frames.
const END_FRAMES_MAX: f64 = 2.0;
/// Seeking lands on the key frame at or before a time. A little earlier than the key frame: what lies before it is
/// left out anyway, while a rounded time after it would lose all up to the next one.
const BEFORE_KEY_SEC: f64 = 0.002;

/// Video may begin a little after sound. Below the time before a part that packets are looked at.
const LEAD_SEC: f64 = 0.5;

/// More than this is not decoded in vain: a recording that breaks off fails every check.
const FROM_BEGIN_SEC_MAX: f64 = 600.0;

/// A part of a recording, in seconds from its begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Part {
    pub(super) start: f64,
    pub(super) length: f64,
}

/// How to cut.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Plan {
    /// Copies the streams.
    Copy {
        /// What ffmpeg is to seek to.
        from: f64,
        /// For how long video packets are taken, by the time they are decoded at.
        video: f64,
        /// For how long audio packets are taken.
        audio: f64,
    },
    /// Encodes them, from where the container says that the part begins.
    Encode(Part),
    /// Encodes them after decoding all that lies before. Slow; for containers in which seeking goes wrong.
    EncodeFromBegin(Part),
}

impl Plan {
    /// The plans to try one after the other until a clip is what was asked for, this one first.
    pub(super) fn with_fallbacks(self, part: Part) -> Vec<Self> {
        let mut plans = vec![self];
        if matches!(self, Self::Copy { .. }) {
            plans.push(Self::Encode(part));
        }
        if part.start > 0.0 && part.start <= FROM_BEGIN_SEC_MAX {
            plans.push(Self::EncodeFromBegin(part));
        }
        plans
    }

    /// Its name in the result.
    pub(super) fn mode(self) -> &'static str {
        match self {
            Self::Copy { .. } => "copy",
            Self::Encode(_) | Self::EncodeFromBegin(_) => "encode",
        }
    }
}

/// Whether the codecs allow a copy at all.
pub(super) fn may_copy(media: &Media) -> bool {
    let video = media.video.as_ref().is_none_or(|video| VIDEO_CODECS.contains(&video.codec.as_str()));
    let audio = media.audio.as_ref().is_none_or(|audio| AUDIO_CODECS.contains(&audio.codec.as_str()));
    video && audio
}

/// Decides. `packets` are those of the video around the part.
pub(super) fn plan(media: &Media, part: Part, packets: &[Packet]) -> Plan {
    if !may_copy(media) {
        return Plan::Encode(part);
    }
    let Some(video) = &media.video else {
        // Each packet of sound stands for itself.
        return Plan::Copy { from: part.start, video: part.length, audio: part.length };
    };
    copy(packets, media.start, part, video.frame).unwrap_or(Plan::Encode(part))
}

fn copy(packets: &[Packet], origin: f64, part: Part, frame: f64) -> Option<Plan> {
    let (start, end) = (origin + part.start, origin + part.start + part.length);
    let near = |p: &Packet| (p.pts - start).abs() <= frame / 2.0;
    // Nothing is shown before the first frame of a recording, so a cut may begin anywhere before it.
    let leads = |at: usize, p: &Packet| {
        at == 0 && part.start < LEAD_SEC && (start..start + LEAD_SEC).contains(&p.pts)
    };
    let mut numbered = packets.iter().enumerate();
    let (key, _) = numbered.find(|(at, packet)| packet.is_key && (near(packet) || leads(*at, packet)))?;
    let packets = &packets[key..];
    let first = packets[0].pts;
    // Frames that are shown before the key frame but lie after it need an earlier one.
    if packets.iter().any(|packet| packet.pts < first) {
        return None;
    }
    let (at, end_at) = best_end(packets, end, frame)?;
    if (end_at - end).abs() > END_FRAMES_MAX * frame {
        return None;
    }
    let from = (first - BEFORE_KEY_SEC).min(start).max(origin);
    let video = match packets.get(at) {
        // Between the last packet that is taken and the first that is not.
        Some(next) => (packets[at - 1].dts? + next.dts?) / 2.0 - from,
        None => end - from + 1.0,
    };
    Some(Plan::Copy { from: from - origin, video, audio: end_at - from })
}

/// How many packets to take so that the copy ends as close to `end` as can be, and when it ends then.
fn best_end(packets: &[Packet], end: f64, frame: f64) -> Option<(usize, f64)> {
    let mut later = vec![f64::INFINITY; packets.len() + 1];
    for at in (0..packets.len()).rev() {
        later[at] = later[at + 1].min(packets[at].pts);
    }
    let mut latest = f64::NEG_INFINITY;
    let ends = packets.iter().enumerate().filter_map(|(at, packet)| {
        latest = latest.max(packet.pts);
        let next = later[at + 1];
        let end_at = if next.is_finite() { next } else { latest + frame };
        (latest < next).then_some((at + 1, end_at))
    });
    ends.min_by(|(_, a), (_, b)| (a - end).abs().total_cmp(&(b - end).abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: f64 = 0.04;

    /// Frames by the number of the picture they show, key frames marked, decoded two frames ahead.
    fn packets(order: &[(u32, bool)]) -> Vec<Packet> {
        let number = |n: usize| f64::from(u32::try_from(n).unwrap());
        let packet = |(n, (picture, is_key)): (usize, &(u32, bool))| Packet {
            pts: f64::from(*picture) * FRAME,
            dts: Some((number(n) - 2.0) * FRAME),
            is_key: *is_key,
        };
        order.iter().enumerate().map(packet).collect()
    }

    fn plain() -> Vec<Packet> {
        let order: Vec<(u32, bool)> = (0..100).map(|n| (n, n % 25 == 0)).collect();
        packets(&order)
    }

    fn part(start: u32, frames: u32) -> Part {
        Part { start: f64::from(start) * FRAME, length: f64::from(frames) * FRAME }
    }

    fn frames_taken(packets: &[Packet], plan: Plan) -> Vec<f64> {
        let Plan::Copy { from, video, .. } = plan else { panic!("encoded") };
        let key = packets.iter().position(|p| p.is_key && p.pts >= from).unwrap();
        let taken = packets[key..].iter().take_while(|p| p.dts.unwrap() < from + video);
        taken.map(|p| (p.pts / FRAME).round()).collect()
    }

    #[test]
    fn a_cut_from_a_key_frame_is_a_copy_of_exactly_its_frames() {
        for frames in [1, 7, 25, 49] {
            let packets = plain();
            let plan = copy(&packets, 0.0, part(25, frames), FRAME).unwrap();
            let taken = frames_taken(&packets, plan);
            assert_eq!((taken[0], taken.len()), (25.0, frames as usize));
        }
    }

    #[test]
    fn within_half_a_frame_a_key_frame_counts() {
        let near = |off: f64| copy(&plain(), 0.0, Part { start: 1.0 + off, length: 1.0 }, FRAME).is_some();
        assert!(near(0.019) && near(-0.019));
        assert!(!near(0.021) && !near(-0.021) && !near(0.5));
    }

    #[test]
    fn a_copy_ends_where_no_later_frame_is_missing() {
        // Pictures 1 to 3 lie after 4, 5 to 7 after 8.
        let order = [0, 4, 2, 1, 3, 8, 6, 5, 7, 12, 10, 9, 11].map(|n| (n, n == 0));
        let packets = packets(&order);
        let count = |frames: u32| {
            let plan = copy(&packets, 0.0, part(0, frames), FRAME)?;
            let mut taken = frames_taken(&packets, plan);
            taken.sort_by(f64::total_cmp);
            assert!(taken.iter().enumerate().all(|(n, picture)| *picture as usize == n), "{taken:?}");
            Some(taken.len())
        };
        assert_eq!([count(1), count(5), count(6), count(8), count(9)], [1, 5, 5, 9, 9].map(Some));
        // The end of the file is one as well.
        assert_eq!(count(13), Some(13));
        assert_eq!(count(20), None);
    }

    #[test]
    fn a_key_frame_with_earlier_pictures_after_it_is_no_begin() {
        let packets = packets(&[(0, true), (4, true), (2, false), (3, false), (5, false)]);
        assert_eq!(copy(&packets, 0.0, part(4, 1), FRAME), None);
    }

    #[test]
    fn a_recording_that_does_not_begin_at_zero_is_cut_at_the_same_place() {
        let moved: Vec<Packet> = plain()
            .iter()
            .map(|p| Packet { pts: p.pts + 7.0, dts: p.dts.map(|dts| dts + 7.0), ..*p })
            .collect();
        let Some(Plan::Copy { from, .. }) = copy(&moved, 7.0, part(25, 10), FRAME) else { panic!("encoded") };
        assert!((from - 0.998).abs() < 1e-6, "{from}");
    }

    #[test]
    fn a_recording_whose_video_begins_after_its_sound_is_copied_from_the_begin() {
        let late: Vec<Packet> = plain()
            .iter()
            .map(|p| Packet { pts: p.pts + 0.1, dts: p.dts.map(|dts| dts + 0.1), ..*p })
            .collect();
        let plan = copy(&late, 0.0, Part { start: 0.0, length: 1.0 }, FRAME).unwrap();
        assert!(matches!(plan, Plan::Copy { from: 0.0, .. }), "{plan:?}");
        assert!((22..=23).contains(&frames_taken(&late, plan).len()), "{plan:?}");
        assert_eq!(copy(&late[1..], 0.0, Part { start: 0.0, length: 1.0 }, FRAME), None);
    }

    #[test]
    fn without_packets_or_decode_times_it_is_encoded() {
        assert_eq!(copy(&[], 0.0, part(0, 10), FRAME), None);
        let untimed: Vec<Packet> = plain().iter().map(|p| Packet { dts: None, ..*p }).collect();
        assert_eq!(copy(&untimed, 0.0, part(25, 10), FRAME), None);
    }
}
