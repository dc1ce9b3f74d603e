//! Stateless randomness.

/// A stateless source of randomness: the same question always gets the same answer, and another label is another question.
///
/// ```
/// use annie_testkit::sim::Dice;
/// let dice = Dice::new(7);
/// assert_eq!(dice.of("model").nth(3).roll(), dice.of("model").nth(3).roll());
/// assert_ne!(dice.of("model").roll(), dice.of("skill").roll());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dice(u64);

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

impl Dice {
    /// The dice of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(GOLDEN)))
    }

    /// The dice for the question with this name.
    #[must_use]
    pub fn of(self, label: &str) -> Self {
        // FNV-1a: a hash whose result never changes with a toolchain.
        let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        Self(mix(self.0 ^ label.as_bytes().iter().fold(0xCBF2_9CE4_8422_2325, fnv)))
    }

    /// The dice for the `n`th repetition of this question.
    #[must_use]
    pub const fn nth(self, n: u64) -> Self {
        Self(mix(self.0.wrapping_add(n.wrapping_add(1).wrapping_mul(GOLDEN))))
    }

    /// 64 random bits.
    #[must_use]
    pub const fn roll(self) -> u64 {
        mix(self.0 ^ GOLDEN)
    }

    /// From 0 to `n - 1`; 0 for 0.
    #[must_use]
    pub const fn below(self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.roll() % n }
    }

    /// A number between `low` and `high`, both included.
    #[must_use]
    pub const fn between(self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True in `per_mille` of a thousand cases.
    #[must_use]
    pub const fn chance(self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of the elements.
    ///
    /// # Panics
    /// If `from` is empty.
    #[must_use]
    pub fn pick<T: Copy>(self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dice_chance_is_true_at_the_given_rate() {
        let hits = (0..10_000).filter(|n| Dice::new(1).nth(*n).chance(250)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
    }
}
