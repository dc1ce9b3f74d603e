//! What a person's mood changes: how much is said, whether one is nudged, and the order within a class. It comes with the
//! message as a signal of the front end (speech emotion recognition); no model guesses it here.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::event::Priority;

/// Below this intensity a signal changes nothing: it may be a misreading.
pub const INTENSITY_MIN: f32 = 0.4;
/// Above this it may lift a class and defer what the system wants to do: not below a confidence of 0.7 [S3 12.4].
pub const INTENSITY_SURE: f32 = 0.7;
/// The furthest that a task's waiting anchor is moved, in milliseconds: a fifth of the 300 s after which aging makes a class
/// of it, so that it changes the order within a class and not the class.
pub const ORDER_SHIFT_MS_MAX: i64 = 60_000;

/// What a front end hears [S3 12.1].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Emotion {
    /// Nothing in particular; also `calm`.
    #[default]
    Neutral,
    /// Wants it done and no talk; also `angry`, `annoyed`, `impatient`, `urgent`.
    Frustrated,
    /// Has too much to do; also `anxious`, `fear`, `overwhelmed`.
    Stressed,
    /// In the mood for more; also `joy`, `excited`.
    Happy,
    /// Wants quiet; also `low`, `sad`, `sadness`.
    Tired,
    /// Wants to know more; also `interested`, `surprise`.
    Curious,
}

impl Emotion {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Neutral, Self::Frustrated, Self::Stressed, Self::Happy, Self::Tired, Self::Curious];

    /// The wire word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Neutral => "neutral",
            Self::Frustrated => "frustrated",
            Self::Stressed => "stressed",
            Self::Happy => "happy",
            Self::Tired => "tired",
            Self::Curious => "curious",
        }
    }
}

impl FromStr for Emotion {
    type Err = String;
    /// Reads the labels of common recognisers too, in any case.
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text.trim().to_lowercase().as_str() {
            "neutral" | "calm" | "relaxed" => Self::Neutral,
            "frustrated" | "frustration" | "angry" | "anger" | "annoyed" | "impatient" | "urgent" => Self::Frustrated,
            "stressed" | "stress" | "anxious" | "anxiety" | "fear" | "fearful" | "overwhelmed" => Self::Stressed,
            "happy" | "happiness" | "joy" | "joyful" | "excited" => Self::Happy,
            "tired" | "low" | "sad" | "sadness" | "exhausted" => Self::Tired,
            "curious" | "curiosity" | "interested" | "surprise" | "surprised" => Self::Curious,
            other => {
                let other: String = other.chars().take(40).collect();
                return Err(format!("unknown emotion {other:?}"));
            }
        })
    }
}

/// How much an answer says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Brevity {
    /// With detail, and what else belongs to it.
    Full,
    /// As usual.
    #[default]
    Normal,
    /// To the point.
    Short,
    /// As few words as possible.
    Minimal,
}

/// What follows from a mood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mood {
    /// How much an answer says.
    pub brevity: Brevity,
    /// Whether suggestions and reminders that nobody asked for are welcome.
    pub nudges: bool,
    /// What a person's task may be lifted to: HIGH or nothing. Voice alone is REALTIME.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lift: Option<Priority>,
    /// By how much a waiting anchor is moved, in milliseconds: negative is earlier, so sooner. Never further than
    /// [`ORDER_SHIFT_MS_MAX`], and 0 or less: nobody is put back for feeling something.
    #[serde(default)]
    pub order_shift_ms: i64,
}

impl Default for Mood {
    fn default() -> Self {
        Self { brevity: Brevity::Normal, nudges: true, lift: None, order_shift_ms: 0 }
    }
}

impl Mood {
    /// By how much a waiting anchor is moved, whatever was stored, in milliseconds.
    #[must_use]
    pub fn shift_ms(&self) -> i64 {
        self.order_shift_ms.clamp(-ORDER_SHIFT_MS_MAX, 0)
    }
}

/// What follows from this emotion [S3 12.1]. `intensity` is the recogniser's confidence, 0 to 1; anything else is taken for
/// the nearer of the two, and what is no number for 0.
#[must_use]
pub fn mood(emotion: Emotion, intensity: f32) -> Mood {
    let usual = Mood::default();
    if emotion == Emotion::Neutral || intensity.is_nan() || intensity < INTENSITY_MIN {
        return usual;
    }
    let is_sure = intensity > INTENSITY_SURE;
    match emotion {
        Emotion::Neutral => usual,
        Emotion::Frustrated => Mood {
            brevity: Brevity::Short,
            nudges: false,
            lift: is_sure.then_some(Priority::High),
            order_shift_ms: sooner(ORDER_SHIFT_MS_MAX, intensity),
        },
        Emotion::Stressed => Mood {
            brevity: Brevity::Short,
            nudges: false,
            order_shift_ms: sooner(ORDER_SHIFT_MS_MAX / 2, intensity),
            ..usual
        },
        Emotion::Tired => {
            Mood { brevity: if is_sure { Brevity::Minimal } else { Brevity::Short }, nudges: false, ..usual }
        }
        Emotion::Happy => usual,
        Emotion::Curious => Mood { brevity: Brevity::Full, ..usual },
    }
}

fn sooner(most_ms: i64, intensity: f32) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "at most 100")]
    let percent = (intensity.clamp(0.0, 1.0) * 100.0).round() as i64;
    -(most_ms * percent / 100)
}
