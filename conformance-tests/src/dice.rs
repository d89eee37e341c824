//! Chance that can be repeated from its seed.

/// A small generator (Knuth's MMIX).
#[derive(Clone, Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// One of `0..sides`.
    pub(crate) fn roll(&mut self, sides: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        u32::try_from((self.0 >> 33) % u64::from(sides)).unwrap_or(0)
    }
}
