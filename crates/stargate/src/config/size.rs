//! Numbers of bytes as people write them: `"10GiB"`, `"500MB"`, or plain bytes.

use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// The units, largest first: the ones of memory in powers of 1024, the ones of disks in powers of 1000.
const UNITS: [(&str, u64); 10] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1000),
    ("B", 1),
    ("", 1),
];

/// A number of bytes in the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) u64);

/// Reads `10GiB`, `1.5 GB`, `500MB` or plain bytes.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!("{text:?} is not a size; write \"10GiB\", \"500MB\", \"64KiB\" or a plain number of bytes")
    };
    let trimmed = text.trim();
    let at = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(at);
    let named = UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
    let (_, factor) = named.ok_or_else(wrong)?;
    let Some((whole, fraction)) = number.split_once('.') else {
        return number.parse::<u64>().ok().and_then(|number| number.checked_mul(*factor)).ok_or_else(wrong);
    };
    // Exact: a float would lose bytes of large numbers.
    let digits =
        u32::try_from(fraction.len()).ok().filter(|digits| (1..=9).contains(digits)).ok_or_else(wrong)?;
    let (whole, fraction) = whole.parse::<u64>().ok().zip(fraction.parse::<u64>().ok()).ok_or_else(wrong)?;
    let part = u128::from(fraction) * u128::from(*factor) / u128::from(10_u64.pow(digits));
    let part = u64::try_from(part).map_err(|_| wrong())?;
    whole.checked_mul(*factor).and_then(|bytes| bytes.checked_add(part)).ok_or_else(wrong)
}

/// Writes a size exactly, so that [`parse`] reads the same number again.
pub(crate) fn show(bytes: u64) -> String {
    let fits = |(_, factor): &&(&str, u64)| bytes >= *factor && bytes.is_multiple_of(*factor);
    match UNITS.iter().find(fits) {
        Some((unit, factor)) => format!("{}{unit}", bytes / factor),
        None => format!("{bytes}B"),
    }
}

/// A size for people, rounded: `1.4 GiB`.
pub(crate) fn words(bytes: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
    let in_unit = |factor: u64| bytes as f64 / factor as f64;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", in_unit(1 << 10)),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", in_unit(1 << 20)),
        _ => format!("{:.1} GiB", in_unit(1 << 30)),
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SizeVisitor)
    }
}

struct SizeVisitor;

impl Visitor<'_> for SizeVisitor {
    type Value = Size;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a size such as \"10GiB\", \"500MB\", or a plain number of bytes")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        parse(text).map(Size).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
        let wrong = |_| E::invalid_value(Unexpected::Signed(bytes), &self);
        u64::try_from(bytes).map_err(wrong).map(Size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_both_families_and_plain_bytes_are_read_exactly() {
        assert_eq!(parse("10GiB"), Ok(10 << 30));
        assert_eq!(parse("500MB"), Ok(500_000_000));
        assert_eq!(parse(" 1.5 gib "), Ok(3 << 29));
        assert_eq!(parse("0.1kB"), Ok(100));
        assert_eq!(parse("64KiB"), Ok(65_536));
        assert_eq!(parse("4096"), Ok(4096));
        assert_eq!(parse("7B"), Ok(7));
    }

    #[test]
    fn nonsense_is_refused_with_examples() {
        for bad in [
            "",
            "GiB",
            "much",
            "-5MB",
            "10 elephants",
            "1..5GB",
            "1.GB",
            ".5GB",
            "99999999999TiB",
            "1e9",
            "10G B",
        ] {
            assert!(parse(bad).unwrap_err().contains("10GiB"), "{bad:?}");
        }
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for bytes in [0, 1, 1000, 1024, 4 << 30, 500_000_000, 1_234_567, 10 << 30, u64::MAX] {
            assert_eq!(parse(&show(bytes)), Ok(bytes), "{}", show(bytes));
        }
        assert_eq!((show(10 << 30), show(500_000_000)), ("10GiB".to_owned(), "500MB".to_owned()));
    }
}
