//! Looks whether a finished clip is what was asked for, before anybody else can see it.

use super::plan::Part;
use super::probe::Media;

/// What is lost to rounding in containers that count in milliseconds.
const ROUNDING_SEC: f64 = 0.02;

/// How far the length of a clip may be from what was asked for: two frames, and two packets of sound.
pub(super) fn tolerance(source: &Media) -> f64 {
    let video = source.video.as_ref().map_or(0.0, |video| video.frame);
    let audio = source.audio.as_ref().map_or(0.0, |audio| audio.frame);
    2.0 * video + 2.0 * audio + ROUNDING_SEC
}

/// Checks a clip and answers its length, or what is wrong with it.
pub(super) fn verify(source: &Media, part: Part, clip: &Media) -> Result<f64, String> {
    let (origin, tolerance) = (source.start, tolerance(source));
    let covers = |span: Option<(f64, f64)>| {
        span.is_none_or(|(from, to)| {
            from - origin < part.start + part.length - tolerance && to - origin > part.start + tolerance
        })
    };
    // A recording may have sound for a part of its time only.
    if source.video.as_ref().is_some_and(|video| covers(video.span)) && clip.video.is_none() {
        return Err("it has no video".to_owned());
    }
    if source.audio.as_ref().is_some_and(|audio| covers(audio.span)) && clip.audio.is_none() {
        return Err("it has no sound".to_owned());
    }
    let Some(length) = clip.duration else { return Err("it is empty".to_owned()) };
    let begins = clip.video.as_ref().and_then(|video| video.span).map_or(0.0, |(from, _)| from);
    if source.video.as_ref().is_some_and(|video| covers(video.span)) && begins > tolerance {
        return Err(format!("its video begins {begins:.3} s late"));
    }
    // What a recording of unknown length has left is not known before.
    let too_short = source.duration.is_some() && length < part.length - tolerance;
    if too_short || length > part.length + tolerance {
        return Err(format!("it is {length:.3} s long instead of {:.3} s", part.length));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::super::probe::{Audio, Video};
    use super::*;

    const PART: Part = Part { start: 2.0, length: 2.0 };

    fn media(duration: f64) -> Media {
        Media {
            format: "mov".to_owned(),
            duration: Some(duration),
            start: 0.0,
            video: Some(Video {
                index: 0,
                codec: "h264".to_owned(),
                is_even: true,
                frame: 0.04,
                span: Some((0.0, duration)),
            }),
            audio: Some(Audio {
                index: 1,
                codec: "aac".to_owned(),
                frame: 2048.0 / 48_000.0,
                span: Some((0.0, duration)),
            }),
        }
    }

    #[test]
    fn a_clip_of_the_right_length_is_accepted() {
        for length in [1.9, 2.0, 2.08] {
            assert_eq!(verify(&media(6.0), PART, &media(length)), Ok(length));
        }
    }

    #[test]
    fn a_clip_of_another_length_or_without_a_stream_is_not() {
        for length in [1.5, 2.5] {
            assert!(verify(&media(6.0), PART, &media(length)).unwrap_err().contains("instead of 2.000 s"));
        }
        let wrong = |change: fn(&mut Media)| {
            let mut clip = media(2.0);
            change(&mut clip);
            verify(&media(6.0), PART, &clip).unwrap_err()
        };
        assert_eq!(wrong(|clip| clip.video = None), "it has no video");
        assert_eq!(wrong(|clip| clip.audio = None), "it has no sound");
        assert_eq!(wrong(|clip| clip.duration = None), "it is empty");
        assert!(wrong(|clip| clip.video.as_mut().unwrap().span = Some((0.9, 2.0))).contains("late"));
    }

    #[test]
    fn sound_that_the_source_has_not_at_that_place_is_not_asked_for() {
        let mut source = media(6.0);
        source.audio.as_mut().unwrap().span = Some((0.0, 1.0));
        let mut clip = media(2.0);
        clip.audio = None;
        assert_eq!(verify(&source, PART, &clip), Ok(2.0));
    }

    #[test]
    fn a_source_of_unknown_length_may_end_early() {
        let mut source = media(6.0);
        source.duration = None;
        assert_eq!(verify(&source, PART, &media(0.5)), Ok(0.5));
    }
}
