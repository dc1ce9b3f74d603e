//! The W3C trace context of a request: the trace that a caller records, and the span in it that made the request.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The length of a `traceparent` of version 00, in bytes.
const LEN_BYTES: usize = 55;

/// A valid `traceparent` header (W3C Trace Context, level 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace of the caller. Not all zero.
    pub trace: [u8; 16],
    /// The span of the caller. Not all zero.
    pub span: [u8; 8],
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

/// A text is not a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent: write 00-, 32 hexadecimal digits, 16 hexadecimal digits and two more for the flags")]
pub struct TraceParentError;

impl FromStr for TraceParent {
    type Err = TraceParentError;

    /// Reads a header. A later version is read as version 00, as the specification demands: more fields may follow.
    fn from_str(text: &str) -> Result<Self, TraceParentError> {
        let head = text.get(..LEN_BYTES).ok_or(TraceParentError)?;
        let parts: Vec<&str> = head.split('-').collect();
        let [version, trace, span, flags] = parts[..] else { return Err(TraceParentError) };
        let version: [u8; 1] = bytes(version)?;
        let ends = match version {
            [0] => text.len() == LEN_BYTES,
            [0xff] => false,
            _ => text.len() == LEN_BYTES || text.as_bytes()[LEN_BYTES] == b'-',
        };
        let (trace, span): ([u8; 16], [u8; 8]) = (bytes(trace)?, bytes(span)?);
        if !ends || trace == [0; 16] || span == [0; 8] {
            return Err(TraceParentError);
        }
        let [flags] = bytes(flags)?;
        Ok(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// The bytes of lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Result<[u8; N], TraceParentError> {
    let is_hex = |digit: u8| digit.is_ascii_digit() || (b'a'..=b'f').contains(&digit);
    if text.len() != N * 2 || !text.bytes().all(is_hex) {
        return Err(TraceParentError);
    }
    let mut bytes = [0; N];
    for (n, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[n * 2..n * 2 + 2], 16).map_err(|_| TraceParentError)?;
    }
    Ok(bytes)
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-0{}", u8::from(self.is_sampled))
    }
}

impl Serialize for TraceParent {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceParent {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_parent_is_read_and_written_in_its_standard_form() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent: TraceParent = text.parse().unwrap();
        assert_eq!((parent.trace[0], parent.span[7], parent.is_sampled), (0x4b, 0xb7, true));
        assert_eq!(parent.to_string(), text);
        let later = text.replacen("00", "cc", 1) + "-more";
        assert_eq!(later.parse(), Ok(parent), "a later version may have more fields");
        let json = serde_json::to_string(&parent).unwrap();
        assert_eq!(serde_json::from_str::<TraceParent>(&json).unwrap(), parent);
    }

    #[test]
    fn trace_parent_that_is_not_valid_is_refused() {
        for text in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0ü",
        ] {
            assert_eq!(text.parse::<TraceParent>(), Err(TraceParentError), "{text}");
        }
    }
}
