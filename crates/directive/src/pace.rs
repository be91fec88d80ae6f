//! How many items a page is to have: fewer when the source is annoyed or its items are large, more again when not.

/// The most that a batch may hold in memory.
pub const BATCH_BYTES_MAX: usize = 50 * 1024 * 1024;
/// From this share of [`BATCH_BYTES_MAX`] on pages shrink.
const NEAR: f64 = 0.8;
/// The share that a shrunken page aims at.
const AIM: f64 = 0.5;
/// Good pages in a row after which a page grows.
const GOOD_MIN: u32 = 3;
/// What a page grows by.
const GROWTH: f64 = 1.5;

/// The smallest and largest page a directive may ask for, and what it gets if it does not.
pub const PAGE_SIZE: std::ops::RangeInclusive<u32> = 50..=500;
/// The page of a directive that asks for none.
pub const PAGE_SIZE_DEFAULT: u32 = 100;

/// How many items the next page is to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    wanted: u32,
    now: u32,
    good: u32,
}

impl Pace {
    /// Begins with what the directive wants.
    pub fn new(wanted: u32) -> Self {
        Self { wanted, now: wanted, good: 0 }
    }

    /// Goes on with what it had come down to.
    pub fn resumed(wanted: u32, now: Option<u32>) -> Self {
        Self { wanted, now: now.unwrap_or(wanted).clamp(1, wanted), good: 0 }
    }

    /// How many items the next page is to have.
    pub fn size(&self) -> u32 {
        self.now
    }

    /// The source asked for less: half of it, but not below what it must bear.
    pub fn limited(&mut self) {
        let floor = self.wanted.min(*PAGE_SIZE.start());
        self.now = (self.now / 2).max(floor.min(self.now));
        self.good = 0;
    }

    /// A page of so many items took so much memory.
    pub fn took(&mut self, items: usize, bytes: usize) {
        if items == 0 {
            return;
        }
        let of_ceiling = |share: f64| BATCH_BYTES_MAX as f64 * share;
        let each = bytes as f64 / items as f64;
        if bytes as f64 >= of_ceiling(NEAR) {
            let fitting = of_ceiling(AIM) / each;
            self.now = self.now.min((fitting as u32).max(1));
            self.good = 0;
            return;
        }
        self.good += 1;
        let grown = ((f64::from(self.now) * GROWTH).ceil() as u32).min(self.wanted);
        if self.good >= GOOD_MIN && f64::from(grown) * each < of_ceiling(NEAR) {
            self.now = grown;
            self.good = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn a_limited_page_halves_down_to_fifty_and_grows_back() {
        let mut pace = Pace::new(400);
        for expected in [200, 100, 50, 50] {
            pace.limited();
            assert_eq!(pace.size(), expected);
        }
        let mut sizes = Vec::new();
        for _ in 0..24 {
            pace.took(pace.size() as usize, 1000);
            sizes.push(pace.size());
        }
        sizes.dedup();
        assert_eq!(sizes, [50, 75, 113, 170, 255, 383, 400]);
    }

    #[test]
    fn large_items_shrink_the_page_below_fifty_and_it_stays_there_while_they_are_large() {
        let mut pace = Pace::new(500);
        pace.took(500, 500 * MIB);
        assert_eq!(pace.size(), 25);
        for _ in 0..20 {
            let size = pace.size() as usize;
            pace.took(size, size * MIB);
            assert!(pace.size() <= 40, "{pace:?}");
        }
        pace.took(1, 60 * MIB);
        assert_eq!(pace.size(), 1, "an item over the ceiling comes alone");
    }

    #[test]
    fn an_empty_page_tells_nothing() {
        let mut pace = Pace::new(100);
        pace.took(0, 0);
        assert_eq!(pace, Pace::new(100));
    }
}
