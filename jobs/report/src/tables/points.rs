//! Formats rates, differences of rates and p-values.

/// Formats a share of 1 as `64.6 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Formats a difference of shares in percentage points, as `+12.5`.
pub fn points(difference: f64) -> String {
    format!("{:+.1}", difference * 100.0)
}

/// Formats an interval of a difference, as `-6.8 to +30.7`.
pub fn points_interval([low, high]: [f64; 2]) -> String {
    format!("{} to {}", points(low), points(high))
}

/// Formats a p-value, as `0.3018` or `1.2e-6`.
pub fn p_value(p: f64) -> String {
    if p < 1e-4 {
        format!("{p:.1e}")
    } else {
        format!("{p:.4}")
    }
}
