//! The topics of a live stream, and the position from which a stream is resumed.

use std::{collections::BTreeMap, fmt, str::FromStr};

use annie_core::ids::{ConversationId, Seq};

use crate::{auth::KeyScope, error::ApiError};

/// Topics of one stream, at most.
pub(crate) const TOPICS_MAX: usize = 12;

/// What a viewer follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Topic {
    /// The summary of the server.
    Status,
    /// The waiting tasks and the running rounds.
    Queue,
    /// The last hour.
    Overview,
    /// The actors.
    Tree,
    /// The caller's notifications, after an id if one is given, otherwise the new ones.
    Notifications(Option<u64>),
    /// The events and drafts of a conversation after a sequence number.
    Conversation(ConversationId, Seq),
}

impl Topic {
    /// The scope that the topic requires.
    pub const fn scope(&self) -> KeyScope {
        match self {
            Self::Status | Self::Queue | Self::Overview | Self::Tree => KeyScope::OpsRead,
            Self::Notifications(_) | Self::Conversation(..) => KeyScope::Chat,
        }
    }

    /// The topics of a comma-separated list.
    ///
    /// # Errors
    /// If a topic is unknown, or there are none or too many.
    pub fn list(text: &str) -> Result<Vec<Self>, ApiError> {
        let wrong = |why: String| ApiError::invalid(why).at("topics");
        let topics: Vec<Self> = text.split(',').map(str::parse).collect::<Result<_, String>>().map_err(wrong)?;
        if topics.len() > TOPICS_MAX {
            return Err(wrong(format!("{} topics, {TOPICS_MAX} at most", topics.len())));
        }
        Ok(topics)
    }
}

impl FromStr for Topic {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, after) = text.split_once('@').map_or((text, None), |(name, after)| (name, Some(after)));
        let after = after.map(str::parse::<u64>).transpose();
        let after = after.map_err(|_| format!("after the `@` of {text:?} comes a number"))?;
        let topic = match (name, after) {
            ("notifications", after) => return Ok(Self::Notifications(after)),
            ("status", None) => Self::Status,
            ("queue", None) => Self::Queue,
            ("overview", None) => Self::Overview,
            ("tree", None) => Self::Tree,
            (name, after) => {
                let id = name.strip_prefix("conversation:").and_then(|id| id.parse().ok());
                return id.map(|id| Self::Conversation(id, Seq(after.unwrap_or(0)))).ok_or_else(|| {
                    format!(
                        "there is no topic {text:?}; the topics are status, queue, overview, tree, notifications and \
                         conversation:ID, the last two with @NUMBER for the place after which they start"
                    )
                });
            }
        };
        Ok(topic)
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => f.write_str("status"),
            Self::Queue => f.write_str("queue"),
            Self::Overview => f.write_str("overview"),
            Self::Tree => f.write_str("tree"),
            Self::Notifications(_) => f.write_str("notifications"),
            Self::Conversation(id, _) => write!(f, "conversation:{id}"),
        }
    }
}

/// The place in each stored topic up to which a viewer has everything: the id of every server-sent event of a live stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub notifications: Option<u64>,
    pub conversations: BTreeMap<ConversationId, Seq>,
}

impl Position {
    /// The topic from this position on, if the position knows it.
    pub fn resume(&self, topic: Topic) -> Topic {
        match topic {
            Topic::Notifications(after) => Topic::Notifications(self.notifications.or(after)),
            Topic::Conversation(id, after) => {
                Topic::Conversation(id, self.conversations.get(&id).copied().unwrap_or(after))
            }
            topic @ (Topic::Status | Topic::Queue | Topic::Overview | Topic::Tree) => topic,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        if let Some(id) = self.notifications {
            write!(f, "notifications@{id}")?;
            separator = ",";
        }
        for (id, seq) in &self.conversations {
            write!(f, "{separator}conversation:{id}@{seq}")?;
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for Position {
    type Err = ApiError;
    fn from_str(text: &str) -> Result<Self, ApiError> {
        let mut position = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.parse() {
                Ok(Topic::Notifications(Some(id))) => position.notifications = Some(id),
                Ok(Topic::Conversation(id, seq)) if position.conversations.len() < TOPICS_MAX => {
                    position.conversations.insert(id, seq);
                }
                _ => return Err(ApiError::invalid("send the id of an event of this stream").at("Last-Event-ID")),
            }
        }
        Ok(position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_is_read_back_from_the_id_of_an_event() {
        let id: ConversationId = "conv_018f0000000070008000000000000001".parse().unwrap();
        let position = Position { notifications: Some(7), conversations: BTreeMap::from([(id, Seq(12))]) };
        assert_eq!(position.to_string().parse::<Position>().unwrap(), position);
        assert_eq!("".parse::<Position>().unwrap(), Position::default());
        for bad in ["7", "status", "notifications", "conversation:x@1", "notifications@x"] {
            assert!(bad.parse::<Position>().is_err(), "{bad}");
        }
        let at = |after| Topic::Conversation(id, Seq(after));
        assert_eq!(position.resume(at(3)), at(12));
        assert_eq!(position.resume(Topic::Notifications(None)), Topic::Notifications(Some(7)));
    }

    #[test]
    fn topics_of_a_stream_are_known_and_few() {
        let names = Topic::list("status,queue,overview,tree,notifications@3").unwrap();
        assert_eq!(names.len(), 5);
        let error = Topic::list("status,rows").unwrap_err();
        assert!(error.detail.contains("\"rows\"") && error.detail.contains("conversation:ID"), "{}", error.detail);
        for bad in ["", "status@3", "conversation:", "tree,"] {
            assert!(Topic::list(bad).is_err(), "{bad:?}");
        }
        assert!(Topic::list(&vec!["status"; TOPICS_MAX + 1].join(",")).is_err());
    }
}
