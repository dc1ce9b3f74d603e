//! The influence of a user's mood: the length of answers, proactive suggestions, and the order within a class. The front end
//! detects the mood (speech emotion recognition) and sends it with the message. No model guesses it here.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::event::Priority;

/// Minimum intensity of a signal. A weaker signal may be a misdetection and has no effect.
pub const INTENSITY_MIN: f32 = 0.4;
/// Intensity above which a signal may raise a class and defer the system's own work. Must be at least 0.7 [S3 12.4].
pub const INTENSITY_SURE: f32 = 0.7;
/// Maximum shift of a task's queue anchor, in milliseconds. It is a fifth of the 300 s after which aging raises a task by
/// one class, so that it changes the order within a class and not the class.
pub const QUEUE_SHIFT_MS_MAX: i64 = 60_000;

/// The user's emotion as detected by the front end [S3 12.1].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Emotion {
    /// No particular emotion. Also `calm`.
    #[default]
    Neutral,
    /// Wants results without small talk. Also `angry`, `annoyed`, `impatient`, `urgent`.
    Frustrated,
    /// Has too much to do. Also `anxious`, `fear`, `overwhelmed`.
    Stressed,
    /// Open to more detail. Also `joy`, `excited`.
    Happy,
    /// Wants quiet. Also `low`, `sad`, `sadness`.
    Tired,
    /// Wants to know more. Also `interested`, `surprise`.
    Curious,
}

impl Emotion {
    /// All emotions.
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
    /// Parses the names above and the labels of common recognisers, ignoring case.
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

/// Length of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Brevity {
    /// With details and related information.
    Full,
    /// The usual length.
    #[default]
    Normal,
    /// Only the essential facts.
    Short,
    /// As few words as possible.
    Minimal,
}

/// The consequences of a mood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mood {
    /// Length of answers.
    pub brevity: Brevity,
    /// Whether unsolicited suggestions and reminders are welcome.
    pub nudges: bool,
    /// The class to which a user's task may be raised: HIGH or none. REALTIME is reserved for voice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lift: Option<Priority>,
    /// Shift of the task's queue anchor, in milliseconds. Negative values move it earlier. Between -[`QUEUE_SHIFT_MS_MAX`]
    /// and 0: a mood never delays a task.
    #[serde(default, rename = "order_shift_ms")]
    pub queue_shift_ms: i64,
}

impl Default for Mood {
    fn default() -> Self {
        Self { brevity: Brevity::Normal, nudges: true, lift: None, queue_shift_ms: 0 }
    }
}

impl Mood {
    /// Shift of the queue anchor, in milliseconds, limited to the valid range whatever was stored.
    #[must_use]
    pub fn shift_ms(&self) -> i64 {
        self.queue_shift_ms.clamp(-QUEUE_SHIFT_MS_MAX, 0)
    }
}

/// The consequences of this emotion [S3 12.1]. `intensity` is the recogniser's confidence, 0 to 1. Values outside are
/// clamped, and NaN counts as 0.
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
            queue_shift_ms: sooner(QUEUE_SHIFT_MS_MAX, intensity),
        },
        Emotion::Stressed => Mood {
            brevity: Brevity::Short,
            nudges: false,
            queue_shift_ms: sooner(QUEUE_SHIFT_MS_MAX / 2, intensity),
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
