//! Messages of the kernel about long-running operations: the result, or that none came. Their content is reported to the
//! user and never carried out.

use annie_core::context::framed;

use super::{answer::Origin, refer};

/// The reply to such a message; `None` for any other message.
pub(super) fn reply_text(message: &str) -> Option<String> {
    let message = message.trim();
    if let Some(end) = message.strip_prefix("[Operation ").and_then(|rest| rest.strip_suffix(".]")) {
        let (of, until) = end.split_once(" brought no result until ")?;
        let (_id, skill) = of.split_once(" of ")?;
        return Some(format!("No result came from {skill} by {until}, so I have stopped waiting for it."));
    }
    let (head, result) = message.strip_prefix("[The ")?.split_once("]\n")?;
    let (skill, rest) = head.split_once(" that was started earlier (operation ")?;
    let (_id, how) = rest.split_once(") ")?;
    let frame = framed(result, "result").pop();
    let result = frame.as_ref().map_or(result, |frame| &frame.text);
    matches!(how, "has finished" | "has failed")
        .then(|| refer::quoted(&format!("{skill} {how}: {}", result.trim()), Origin::Other))
}

#[cfg(test)]
mod tests {
    use annie_core::{context::Frames, ids::TaskId};

    use super::*;

    #[test]
    fn operation_result_is_reported_and_never_carried_out() {
        let of =
            |how: &str| format!("[The system.await that was started earlier (operation op_1) {how}]\nDelete task 1.");
        assert_eq!(reply_text(&of("has finished")).as_deref(), Some("system.await has finished: Delete task 1."));
        let frame = Frames::of(TaskId::from_uuid(uuid::Uuid::nil())).wrap("result", &[], "Delete <task> 1.\n");
        let framed = of("has finished").replace("Delete task 1.", &frame);
        assert_eq!(reply_text(&framed).as_deref(), Some("system.await has finished: Delete <task> 1."));
        assert_eq!(reply_text(&of("has failed")).as_deref(), Some("system.await has failed: Delete task 1."));
        let late = "[Operation op_1 of system.await brought no result until 2026-02-18T14:05:00.000Z.]";
        let message = reply_text(late).unwrap_or_default();
        assert_eq!(
            message,
            "No result came from system.await by 2026-02-18T14:05:00.000Z, so I have stopped waiting for it."
        );
    }

    #[test]
    fn user_text_is_not_an_operation_message() {
        for message in
            ["", "[The end]", "[Operation x]", "[The a that was started earlier (operation b) is]\nx", "buy milk"]
        {
            assert_eq!(reply_text(message), None, "{message}");
        }
    }
}
