//! What comes out: copied or encoded, and how exact.

use super::fixture::{Bench, assert_failure};

fn close(a: f64, b: f64, by: f64) -> bool {
    (a - b).abs() <= by
}

#[tokio::test]
async fn a_cut_between_key_frames_is_copied() {
    let bench = Bench::new();
    bench.video("a.mp4", 25, &[]).await;
    let result = bench.cut_file("a.mp4", 2.0, 4.0).await;
    assert_eq!(result["mode"], "copy");
    let (duration, frames, streams) = bench.measure(&bench.artifact()).await;
    assert_eq!((frames, streams.as_str()), (50, "h264 aac"));
    assert!(close(duration, 2.0, 0.05), "{duration}");
    assert!(close(result["duration"].as_f64().unwrap(), duration, 0.001));
    assert_eq!(result["key"], "results/42/clip.mp4");
    assert_eq!(result["size"], std::fs::metadata(bench.artifact()).unwrap().len());
    assert_eq!(result["sha256"].as_str().unwrap().len(), 64);
    assert_eq!(result.get("cutShort"), None);
    assert!(bench.scratch().is_empty());
}

#[tokio::test]
async fn a_copy_may_end_between_key_frames() {
    let bench = Bench::new();
    bench.video("a.mp4", 25, &[]).await;
    let result = bench.cut_file("a.mp4", 1.0, 2.52).await;
    assert_eq!(result["mode"], "copy");
    let (duration, frames, _) = bench.measure(&bench.artifact()).await;
    assert!((36..=40).contains(&frames), "{frames}");
    assert!(close(duration, 1.52, 0.13), "{duration}");
}

#[tokio::test]
async fn a_cut_that_begins_between_key_frames_is_encoded_exactly() {
    let bench = Bench::new();
    bench.video("a.mp4", 250, &[]).await;
    let result = bench.cut_file("a.mp4", 1.48, 3.48).await;
    assert_eq!(result["mode"], "encode");
    let (duration, frames, streams) = bench.measure(&bench.artifact()).await;
    assert_eq!((frames, streams.as_str()), (50, "h264 aac"));
    assert!(close(duration, 2.0, 0.05), "{duration}");
    // The first picture is the one of that moment: the source's and the clip's look the same.
    let args = |path: &std::path::Path, at: &str| {
        let address = format!("file:{}", path.display());
        ["-loglevel", "error", "-ss", at, "-i", &address, "-frames:v", "1", "-vf", "scale=8:6,format=gray"]
            .iter()
            .chain(&["-f", "rawvideo", "-c:v", "rawvideo", "pipe:1"])
            .map(|text| (*text).to_owned())
            .collect::<Vec<String>>()
    };
    let picture = async |path: &std::path::Path, at: &str| {
        let args = args(path, at);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        bench.ffmpeg_bytes("ffmpeg", &args).await
    };
    let distance =
        |a: &[u8], b: &[u8]| -> u32 { a.iter().zip(b).map(|(a, b)| u32::from(a.abs_diff(*b))).sum() };
    let first = picture(&bench.artifact(), "0").await;
    let same = distance(&first, &picture(&bench.path("a.mp4"), "1.48").await);
    let other = distance(&first, &picture(&bench.path("a.mp4"), "1.64").await);
    assert!(same * 3 < other, "{same} against {other}");
}

#[tokio::test]
async fn containers_that_do_not_begin_at_zero_are_cut_at_the_right_place() {
    let bench = Bench::new();
    let path = bench.video("a.ts", 25, &[]).await;
    for (start, end) in [(1.0, 3.0), (0.5, 1.5)] {
        let bench = Bench { dir: tempfile::tempdir().unwrap(), ..Bench::new() };
        let result = bench.cut(path.to_str().unwrap(), start, end).await.unwrap().unwrap();
        let (duration, frames, streams) = bench.measure(&bench.artifact()).await;
        assert_eq!(streams, "h264 aac", "{result}");
        assert!(close(duration, end - start, 0.15), "{duration} {result}");
        assert!(close(f64::from(frames), (end - start) * 25.0, 3.0), "{frames} {result}");
    }
}

#[tokio::test]
async fn a_container_in_which_seeking_goes_wrong_is_cut_all_the_same() {
    let bench = Bench::new();
    bench.video("a.flv", 25, &[]).await;
    for start in [0.0, 0.04] {
        bench.cut_file("a.flv", start, start + 1.0).await;
        let (duration, frames, streams) = bench.measure(&bench.artifact()).await;
        assert_eq!(streams, "h264 aac");
        assert!(close(duration, 1.0, 0.1) && (24..=26).contains(&frames), "{duration} {frames}");
        std::fs::remove_dir_all(bench.path("artifacts")).unwrap();
    }
}

#[tokio::test]
async fn codecs_that_mp4_players_do_not_know_are_encoded() {
    let bench = Bench::new();
    let vp9 = ["-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus"];
    bench.video("a.webm", 25, &vp9).await;
    let result = bench.cut_file("a.webm", 2.0, 3.0).await;
    assert_eq!(result["mode"], "encode");
    let (duration, frames, streams) = bench.measure(&bench.artifact()).await;
    assert_eq!((frames, streams.as_str()), (25, "h264 aac"));
    assert!(close(duration, 1.0, 0.08), "{duration}");
}

#[tokio::test]
async fn matroska_is_copied_too() {
    let bench = Bench::new();
    bench.video("a.mkv", 25, &[]).await;
    // Its frames begin where the first sound ends, 21 ms after zero.
    for (start, end) in [(1.02, 3.02), (0.0, 2.0)] {
        let result = bench.cut_file("a.mkv", start, end).await;
        assert_eq!(result["mode"], "copy");
        let (duration, frames, _) = bench.measure(&bench.artifact()).await;
        assert!((49..=51).contains(&frames), "{frames}");
        assert!(close(duration, 2.0, 0.1), "{duration}");
        std::fs::remove_dir_all(bench.path("artifacts")).unwrap();
    }
}

#[tokio::test]
async fn sound_alone_is_cut() {
    let bench = Bench::new();
    bench.video("a.m4a", 25, &["-map", "1:a"]).await;
    assert_eq!(bench.cut_file("a.m4a", 1.5, 3.0).await["mode"], "copy");
    let (duration, frames, streams) = bench.measure(&bench.artifact()).await;
    assert_eq!((frames, streams.as_str()), (0, "aac"));
    assert!(close(duration, 1.5, 0.06), "{duration}");

    let bench = Bench::new();
    bench.video("a.flac", 25, &["-map", "1:a", "-c:v", "none", "-c:a", "flac"]).await;
    assert_eq!(bench.cut_file("a.flac", 1.5, 3.0).await["mode"], "encode");
    let (duration, _, streams) = bench.measure(&bench.artifact()).await;
    assert_eq!(streams, "aac");
    assert!(close(duration, 1.5, 0.06), "{duration}");
}

#[tokio::test]
async fn video_without_sound_and_of_odd_size_is_cut() {
    let bench = Bench::new();
    let odd = ["-map", "0:v", "-vf", "scale=161:121", "-c:v", "ffv1"];
    bench.video("a.mkv", 25, &odd).await;
    assert_eq!(bench.cut_file("a.mkv", 1.0, 2.0).await["mode"], "encode");
    let (_, frames, streams) = bench.measure(&bench.artifact()).await;
    assert_eq!((frames, streams.as_str()), (25, "h264"));
}

#[tokio::test]
async fn an_end_beyond_the_recording_means_its_end() {
    let bench = Bench::new();
    bench.video("a.mp4", 25, &[]).await;
    let result = bench.cut_file("a.mp4", 4.5, 60.0).await;
    assert_eq!(result["cutShort"], true);
    let (duration, _, _) = bench.measure(&bench.artifact()).await;
    assert!(close(duration, 1.5, 0.1), "{duration}");
    assert!(close(result["duration"].as_f64().unwrap(), duration, 0.001), "{result}");
}

#[tokio::test]
async fn a_start_beyond_the_recording_is_refused_with_its_length() {
    let bench = Bench::new();
    let path = bench.video("a.mp4", 25, &[]).await;
    for start in [6.0, 7.0] {
        let failure = bench.cut(path.to_str().unwrap(), start, start + 1.0).await.unwrap_err();
        assert_failure(&failure, "VALIDATION_FAILED", "only 6");
    }
    assert!(bench.scratch().is_empty());
}

#[tokio::test]
async fn less_than_a_frame_is_a_frame() {
    let bench = Bench::new();
    bench.video("a.mp4", 250, &[]).await;
    bench.cut_file("a.mp4", 1.5, 1.501).await;
    assert_eq!(bench.measure(&bench.artifact()).await.1, 1);
}

#[tokio::test]
async fn the_timeline_is_in_order_and_progress_only_rises() {
    let bench = Bench::new();
    bench.video("a.mp4", 250, &[]).await;
    bench.cut_file("a.mp4", 0.5, 5.5).await;
    assert_eq!(bench.heard.names(), ["source:ready", "progress", "uploaded"]);
    let ready = bench.heard.lines.lock().unwrap()[0].clone();
    let size = std::fs::metadata(bench.path("a.mp4")).unwrap().len();
    assert!(ready.contains(&format!("\"bytes\":{size}")) && ready.contains("\"durationSec\":6"), "{ready}");
    let percentages = bench.heard.percentages();
    assert!(percentages.is_sorted() && percentages.last().is_some_and(|last| *last == 99), "{percentages:?}");
}

#[tokio::test]
async fn sound_that_ends_before_the_clip_is_not_missed() {
    let bench = Bench::new();
    let short = ["-filter_complex", "[1:a]atrim=end=1[a]", "-map", "0:v", "-map", "[a]"];
    bench.video("a.mp4", 25, &short).await;
    for (start, end) in [(3.0, 4.0), (3.3, 4.3)] {
        let bench_2 = Bench::new();
        bench_2.cut(bench.path("a.mp4").to_str().unwrap(), start, end).await.unwrap();
        assert_eq!(bench_2.measure(&bench_2.artifact()).await.1, 25);
    }
}
