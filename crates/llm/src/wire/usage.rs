//! Reads what a call cost from the different formats of servers. OpenAI and OpenRouter include cached tokens in
//! `prompt_tokens`; Anthropic's names count them separately from `input_tokens`. Both are converted to one result.

use annie_core::message::Usage;
use serde::{Deserialize, Deserializer};

use crate::config::Price;

/// `usage` as servers send it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireUsage {
    #[serde(deserialize_with = "count")]
    prompt_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
    #[serde(deserialize_with = "count")]
    input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    output_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_read_input_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_creation_input_tokens: Option<u64>,
    #[serde(deserialize_with = "number")]
    cost: Option<f64>,
    cost_details: Option<CostDetails>,
    #[serde(deserialize_with = "flag")]
    is_byok: bool,
}

impl WireUsage {
    /// Merges later counts of the same reply. Anthropic reports the prompt's count at the start and the answer's at the
    /// end. Some servers repeat the prompt's count, or send 0 until they know it.
    pub fn with(self, later: Self) -> Self {
        let count = |before: Option<u64>, now: Option<u64>| now.filter(|n| *n > 0).or(before).or(now);
        Self {
            prompt_tokens: count(self.prompt_tokens, later.prompt_tokens),
            completion_tokens: count(self.completion_tokens, later.completion_tokens),
            prompt_tokens_details: later.prompt_tokens_details.or(self.prompt_tokens_details),
            completion_tokens_details: later.completion_tokens_details.or(self.completion_tokens_details),
            input_tokens: count(self.input_tokens, later.input_tokens),
            output_tokens: count(self.output_tokens, later.output_tokens),
            cache_read_input_tokens: count(self.cache_read_input_tokens, later.cache_read_input_tokens),
            cache_creation_input_tokens: count(self.cache_creation_input_tokens, later.cache_creation_input_tokens),
            cost: later.cost.or(self.cost),
            cost_details: later.cost_details.or(self.cost_details),
            is_byok: later.is_byok || self.is_byok,
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    #[serde(deserialize_with = "count")]
    cached_tokens: Option<u64>,
    #[serde(deserialize_with = "count")]
    cache_write_tokens: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    #[serde(deserialize_with = "count")]
    reasoning_tokens: Option<u64>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct CostDetails {
    #[serde(deserialize_with = "number")]
    upstream_inference_cost: Option<f64>,
}

/// llama.cpp's `timings`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Timings {
    #[serde(deserialize_with = "count")]
    cache_n: Option<u64>,
    #[serde(deserialize_with = "count")]
    prompt_n: Option<u64>,
    #[serde(deserialize_with = "count")]
    predicted_n: Option<u64>,
}

/// A count: a number, or `None` for any other value. A fraction is dropped.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(number(deserializer)?.filter(|n| *n >= 0.0).map(
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above; token counts")]
        |n| n as u64,
    ))
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(value.as_f64().or_else(|| value.as_str().and_then(|s| s.parse().ok())).filter(|n| n.is_finite()))
}

fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(serde_json::Value::deserialize(deserializer)?.as_bool().unwrap_or(false))
}

/// Computes the usage of one call.
pub(crate) fn usage(wire: Option<&WireUsage>, timings: Option<&Timings>, price: Option<&Price>) -> Usage {
    let mut usage = Usage::default();
    if let Some(timings) = timings {
        let cached = timings.cache_n.unwrap_or(0);
        usage.cached_tokens = cached;
        usage.input_tokens = cached.saturating_add(timings.prompt_n.unwrap_or(0));
        usage.output_tokens = timings.predicted_n.unwrap_or(0);
    }
    let mut reported_cost = None;
    if let Some(wire) = wire {
        let details = wire.prompt_tokens_details.clone().unwrap_or_default();
        let read = details.cached_tokens.or(wire.cache_read_input_tokens);
        let written = details.cache_write_tokens.or(wire.cache_creation_input_tokens);
        // Anthropic's names exclude cached tokens.
        let beside =
            || wire.input_tokens.map(|n| n.saturating_add(read.unwrap_or(0)).saturating_add(written.unwrap_or(0)));
        usage.input_tokens = wire.prompt_tokens.or_else(beside).unwrap_or(usage.input_tokens);
        usage.output_tokens = wire.completion_tokens.or(wire.output_tokens).unwrap_or(usage.output_tokens);
        usage.cached_tokens = read.unwrap_or(usage.cached_tokens);
        usage.cache_written_tokens = written.unwrap_or(0);
        usage.reasoning_tokens = wire.completion_tokens_details.as_ref().and_then(|d| d.reasoning_tokens).unwrap_or(0);
        // With the user's own key, OpenRouter's cost is only its fee; the provider bills the rest.
        let upstream = wire.cost_details.as_ref().and_then(|d| d.upstream_inference_cost).filter(|_| wire.is_byok);
        reported_cost = wire.cost.map(|cost| cost + upstream.unwrap_or(0.0));
    }
    usage.cost_usd = reported_cost.or_else(|| price.map(|p| priced(&usage, p))).unwrap_or(0.0);
    usage.bounded()
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn priced(usage: &Usage, price: &Price) -> f64 {
    let plain = usage.input_tokens.saturating_sub(usage.cached_tokens).saturating_sub(usage.cache_written_tokens);
    let sum = plain as f64 * price.input
        + usage.cached_tokens as f64 * price.cached_input.unwrap_or(price.input)
        + usage.cache_written_tokens as f64 * price.cache_write.unwrap_or(price.input)
        + usage.output_tokens as f64 * price.output;
    sum / 1e6
}

/// Whether a server has very likely dropped part of the prompt silently, as Ollama does: it counted less than half of the
/// tokens that the prompt's size suggests.
pub(crate) const fn looks_truncated(prompt_bytes: usize, usage: &Usage) -> bool {
    // Four bytes a token for English prose; a prompt below 8 KiB fits every default context.
    prompt_bytes > 8 * 1024 && usage.input_tokens > 0 && usage.input_tokens < prompt_bytes as u64 / 8
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(wire: Value) -> Usage {
        usage(Some(&serde_json::from_value(wire).unwrap()), None, None)
    }

    #[test]
    fn openrouter_usage_includes_cached_tokens_and_cost() {
        let got = read(json!({"prompt_tokens": 10339, "completion_tokens": 60, "total_tokens": 10399,
            "prompt_tokens_details": {"cached_tokens": 10318, "cache_write_tokens": 7},
            "completion_tokens_details": {"reasoning_tokens": 5}, "cost": 0.0041, "unknown": {"a": 1}}));
        assert_eq!((got.input_tokens, got.output_tokens, got.cached_tokens), (10_339, 60, 10_318));
        assert_eq!((got.cache_written_tokens, got.reasoning_tokens), (7, 5));
        assert!((got.cost_usd - 0.0041).abs() < 1e-12);
    }

    #[test]
    fn openrouter_cost_with_own_key_adds_upstream_cost() {
        let got = read(json!({"prompt_tokens": 1, "cost": 0.001, "is_byok": true,
            "cost_details": {"upstream_inference_cost": 0.02}}));
        assert!((got.cost_usd - 0.021).abs() < 1e-12);
    }

    #[test]
    fn anthropic_usage_counts_cached_tokens_separately() {
        let got = read(json!({"input_tokens": 100, "output_tokens": 9, "cache_read_input_tokens": 900,
            "cache_creation_input_tokens": 50}));
        assert_eq!((got.input_tokens, got.cached_tokens, got.cache_written_tokens), (1_050, 900, 50));
    }

    #[test]
    fn llamacpp_timings_fill_what_usage_leaves_out() {
        let timings: Timings =
            serde_json::from_value(json!({"cache_n": 30, "prompt_n": 12, "predicted_n": 4})).unwrap();
        let alone = usage(None, Some(&timings), None);
        assert_eq!((alone.input_tokens, alone.cached_tokens, alone.output_tokens), (42, 30, 4));
        let wire: WireUsage = serde_json::from_value(json!({"prompt_tokens": 42, "completion_tokens": 4})).unwrap();
        assert_eq!(usage(Some(&wire), Some(&timings), None).cached_tokens, 30);
    }

    #[test]
    fn absurd_usage_is_bounded() {
        let wire = json!({"prompt_tokens": u64::MAX, "completion_tokens": u64::MAX, "cost": 1e300});
        let wire = serde_json::from_value::<WireUsage>(wire).unwrap();
        let usage = usage(Some(&wire), None, None);
        assert_eq!((usage.input_tokens, usage.output_tokens), (Usage::TOKENS_MAX, Usage::TOKENS_MAX));
        assert!(usage.cost_usd <= Usage::COST_USD_MAX);
    }

    #[test]
    fn usage_ignores_unexpected_types() {
        let got = read(json!({"prompt_tokens": null, "completion_tokens": 3.0, "cost": "0.5",
            "prompt_tokens_details": null, "is_byok": "no"}));
        assert_eq!((got.input_tokens, got.output_tokens), (0, 3));
        assert!((got.cost_usd - 0.5).abs() < 1e-12);
    }

    #[test]
    fn configured_prices_apply_if_server_reports_no_cost() {
        let price = Price { input: 3.0, cached_input: Some(0.3), cache_write: None, output: 15.0 };
        let wire: WireUsage = serde_json::from_value(json!({"prompt_tokens": 1_000_000, "completion_tokens": 100_000,
            "prompt_tokens_details": {"cached_tokens": 500_000}}))
        .unwrap();
        let got = usage(Some(&wire), None, Some(&price));
        assert!((got.cost_usd - (1.5 + 0.15 + 1.5)).abs() < 1e-9, "{}", got.cost_usd);
    }

    #[test]
    fn silently_truncated_prompt_is_detected() {
        let counted = |tokens| Usage { input_tokens: tokens, ..Usage::default() };
        assert!(looks_truncated(40_000, &counted(4_096)));
        assert!(!looks_truncated(40_000, &counted(9_000)));
        assert!(!looks_truncated(40_000, &counted(0)));
        assert!(!looks_truncated(4_000, &counted(10)));
    }
}
