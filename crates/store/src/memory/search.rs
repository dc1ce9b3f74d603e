//! Ranking by bm25 as in SQLite's full-text search (k1 = 1.2, b = 0.75, the weight of a common word is at least a millionth),
//! so that a simulation finds the same documents in the same order.

use std::collections::BTreeMap;

use annie_core::words::different_stems;

const K1: f64 = 1.2;
const B: f64 = 0.75;
const WEIGHT_MIN: f64 = 1e-6;

/// The stems of every text. One more stands for its owner and counts only for the length.
pub(super) struct Index {
    texts: Vec<Vec<String>>,
}

impl Index {
    pub fn of(texts: impl Iterator<Item = Vec<String>>) -> Self {
        Self { texts: texts.collect() }
    }

    /// The rank of each text that has any of the words, by its index.
    pub fn ranks(&self, query: &str) -> BTreeMap<usize, f64> {
        let total = self.texts.len() as f64;
        let length = |text: &Vec<String>| text.len() as f64 + 1.0;
        let mean = self.texts.iter().map(length).sum::<f64>() / total.max(1.0);
        let mut ranks = BTreeMap::new();
        for word in different_stems(query) {
            let hits: Vec<(usize, f64)> = self
                .texts
                .iter()
                .map(|text| text.iter().filter(|stem| **stem == word).count() as f64)
                .enumerate()
                .filter(|(_, count)| *count > 0.0)
                .collect();
            let holding = hits.len() as f64;
            let weight = ((total - holding + 0.5) / (holding + 0.5)).ln();
            let weight = if weight > 0.0 { weight } else { WEIGHT_MIN };
            for (index, count) in hits {
                let damped = count + K1 * (1.0 - B + B * length(&self.texts[index]) / mean);
                *ranks.entry(index).or_insert(0.0) += weight * count * (K1 + 1.0) / damped;
            }
        }
        ranks
    }
}
