//! Statistics of repeated measurements.

use serde::{Deserialize, Serialize};

/// Lower quartile, median and upper quartile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is what its name says")]
pub struct Quartiles {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Quartiles {
    /// Returns the quartiles of the values. Without values they are 0.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Quartiles {
        let mut all: Vec<f64> = values.into_iter().collect();
        all.sort_unstable_by(f64::total_cmp);
        let Some(last) = all.len().checked_sub(1) else { return Quartiles::default() };
        let [low, median, high] = [1, 2, 3].map(|quarter| all[last * quarter / 4]);
        Quartiles { low, median, high }
    }

    /// Multiplies all three by a factor.
    pub fn scaled(self, factor: f64) -> Quartiles {
        Quartiles { low: self.low * factor, median: self.median * factor, high: self.high * factor }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_values_that_occurred() {
        let found = Quartiles::of([5., 1., 4., 2., 3.]);
        assert_eq!(found, Quartiles { low: 2., median: 3., high: 4. });
        assert_eq!(Quartiles::of([7.]), Quartiles { low: 7., median: 7., high: 7. });
        assert_eq!(Quartiles::of([]), Quartiles::default());
    }
}
