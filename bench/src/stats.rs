//! Medians and spreads.

use serde::Serialize;

/// The middle of the values, and what eight of ten lie between.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) p10: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
}

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self {
            p10: quantile(&values, 0.1),
            p50: quantile(&values, 0.5),
            p90: quantile(&values, 0.9),
        }
    }
}

/// Between the two nearest of sorted values; NaN of none.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else {
        return f64::NAN;
    };
    let place = part * last as f64;
    let (below, above) = (
        sorted[place.floor() as usize],
        sorted[place.ceil() as usize],
    );
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_lies_between_two_where_there_are_two() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(spread.p50, 2.5);
        assert!((spread.p10 - 1.3).abs() < 1e-9 && (spread.p90 - 3.7).abs() < 1e-9);
        assert!(Spread::of([]).p50.is_nan());
    }
}
