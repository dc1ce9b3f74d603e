//! Long texts that many events have in common, such as the list of skills in the beginning of each turn. Each is stored once, in
//! the table `texts` under an id that follows from the text, and the events name it.

use std::sync::Arc;

use annie_core::{
    event::{EventBody, shared_text_id},
    time::Micros,
};
use uuid::Uuid;

/// The shortest text that is stored apart, in bytes. A shorter one costs less within its event.
const TEXT_BYTES_MIN: usize = 1_024;
/// The most texts that are remembered as stored.
const KNOWN_MAX: usize = 16;
/// For so long a text counts as stored after it was written, in milliseconds. Then it is written again, which only renews its time:
/// a text that was written in the last two hours is never deleted, although no stored event may name it yet. The time of a row is
/// at most ten minutes older than that of the last write, so that concurrent writes leave few versions of the row.
const KNOWN_MS_MAX: i64 = 3_600_000;

/// Texts that are known to be stored, the newest last, with the time at which they were written.
#[derive(Debug, Clone, Default)]
pub struct SharedTexts(Arc<Vec<(String, Uuid, Micros)>>);

/// The text of an event that is stored apart.
pub struct Apart<'a> {
    pub id: Uuid,
    pub text: &'a str,
    /// Whether the text is stored already.
    pub is_stored: bool,
}

impl SharedTexts {
    /// The text of an event of this time that is stored apart, if there is one.
    pub fn apart<'a>(&self, body: &'a EventBody, at: Micros) -> Option<Apart<'a>> {
        let text = body.shared_text().filter(|text| text.len() >= TEXT_BYTES_MIN)?;
        let is_recent = |written: Micros| written <= at && at < written.plus_ms(KNOWN_MS_MAX);
        let known = self.0.iter().rev().find(|(known, _, written)| known == text && is_recent(*written));
        Some(match known {
            Some((_, id, _)) => Apart { id: *id, text, is_stored: true },
            None => Apart { id: shared_text_id(text), text, is_stored: false },
        })
    }

    /// Remembers texts that a commit has stored.
    pub fn learn(&mut self, stored: impl IntoIterator<Item = (Uuid, String, Micros)>) {
        let mut all = None;
        for (id, text, at) in stored {
            let all = all.get_or_insert_with(|| self.0.to_vec());
            all.retain(|(known, ..)| *known != text);
            if all.len() >= KNOWN_MAX {
                all.remove(0);
            }
            all.push((text, id, at));
        }
        if let Some(all) = all {
            self.0 = Arc::new(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use annie_core::{
        event::{Mode, PromptFacts},
        limits::TurnLimits,
    };

    use super::*;

    fn turn_started(skills: String) -> EventBody {
        let facts = PromptFacts { skills, ..PromptFacts::default() };
        let (limits, route) = (TurnLimits::default(), Vec::new());
        EventBody::TurnStarted { mode: Mode::MultiAgent, facts, limits, route, continues: None }
    }

    #[test]
    fn shared_texts_are_written_once_and_the_newest_are_remembered() {
        let mut known = SharedTexts::default();
        let at = Micros(1);
        assert!(known.apart(&turn_started("a".repeat(TEXT_BYTES_MIN - 1)), at).is_none(), "too short");
        assert!(known.apart(&EventBody::answered("a".repeat(TEXT_BYTES_MIN)), at).is_none(), "not shared");
        let texts: Vec<EventBody> =
            (0..=KNOWN_MAX).map(|n| turn_started(format!("{n:02}").repeat(TEXT_BYTES_MIN))).collect();
        for body in &texts {
            let apart = known.apart(body, at).unwrap();
            assert!(!apart.is_stored);
            known.learn([(apart.id, apart.text.to_owned(), at)]);
        }
        let is_stored = |n: usize| known.apart(&texts[n], at).unwrap().is_stored;
        assert!(!is_stored(0) && (1..=KNOWN_MAX).all(is_stored));
        assert_eq!(
            known.apart(&texts[0], at).unwrap().id,
            shared_text_id(&"00".repeat(TEXT_BYTES_MIN)),
            "the id follows from the text"
        );
        let later = at.plus_ms(KNOWN_MS_MAX);
        assert!(!known.apart(&texts[1], later).unwrap().is_stored, "it is written again after an hour");
    }
}
