//! Tests of the whole repair: the text shown while a reply streams, and the final text.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::{names::tests::names, *};

/// Reads a reply in these pieces; returns the shown text, the thinking, the result, and the bytes shown before the end.
fn read(pieces: &[String]) -> (String, String, Whole, usize) {
    let drafts: Arc<Mutex<Vec<Draft>>> = Arc::default();
    let kept = Arc::clone(&drafts);
    let sink: DraftSink = Arc::new(move |draft| kept.lock().unwrap().push(draft));
    let names = names(&["get_skill", "use_skill"], &["tasks.create", "tasks.delete"]);
    let mut sent = ReplyText::new(&names, false, &sink);
    for piece in pieces {
        sent.push(piece);
    }
    let before_end = drafts.lock().unwrap().iter().map(|d| if let Draft::Text(t) = d { t.len() } else { 0 }).sum();
    let whole = sent.finish(false, false);
    let (mut shown, mut thought) = (String::new(), String::new());
    for draft in drafts.lock().unwrap().iter() {
        match draft {
            Draft::Text(text) => shown.push_str(text),
            Draft::Reasoning(text) => thought.push_str(text),
        }
    }
    (shown, thought, whole, before_end)
}

fn pieces(text: &str, cuts: &[usize]) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut % (chars.len() + 1)).collect();
    at.extend([0, chars.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| chars[w[0]..w[1]].iter().collect()).collect()
}

#[test]
fn ordinary_answers_stream_before_their_end() {
    for text in [
        "Hello! How are you?\nFine.",
        "Take the bus.\n\n1. First\n2. Then\n",
        "```rust\nfn main() {}\n```\nThat is all.",
        "{\"answer\": 42, \"unit\": \"none\"}",
        "{\"name\": \"Bob\", \"age\": 7}",
        "[1, 2, 3]",
        "<b>bold</b> text",
        "get up early and use a lamp",
        "Error: 404 means that the page does not exist.\nIt may have moved to another address.",
        "Error: 404 could mean many things, and most of them are harmless if you ask me.",
        "The service says:\nError: connect ECONNREFUSED, so it is down and you should start it.",
        "```\nError: connect ECONNREFUSED 127.0.0.1\n```\nIt is down.",
    ] {
        let (shown, _, whole, before_end) = read(&pieces(text, &(0..200).collect::<Vec<_>>()));
        assert_eq!((shown.as_str(), whole.text.as_str()), (text, text));
        assert!(whole.calls.is_empty() && whole.repairs.is_empty(), "{text}: {whole:?}");
        assert!(before_end + 3 >= text.len(), "{text}: only {before_end} of {} bytes came before the end", text.len());
    }
}

#[test]
fn call_written_as_text_is_never_shown() {
    for (text, prose) in [
        ("{\"name\": \"tasks.create\", \"arguments\": {\"title\": \"x\"}}", ""),
        ("<think>hm</think>\n<tool_call>\n{\"name\": \"get_skill\", \"arguments\": {}}\n</tool_call><|im_end|>", ""),
        ("I add it.\n```json\n{\"name\": \"tasks.create\", \"arguments\": {\"title\": \"x\"}}\n```", "I add it."),
        ("tasks_create {\"title\": \"x\"}", ""),
        ("Error: the title is missing. Call: tasks_create {\"title\": \"Call: Bob\"}", ""),
        (
            "Error: the user named no date, and not \"now\". Nothing was done. Call: use_skill \
             {\"skill\":\"tasks.create\",\"arguments\":{\"title\":\"x\"}}",
            "",
        ),
        ("<|start|>assistant<|channel|>commentary to=functions.get_skill<|message|>{}<|call|>", ""),
    ] {
        let (shown, _, whole, _) = read(&pieces(text, &(0..200).collect::<Vec<_>>()));
        assert_eq!((shown.trim_end(), whole.text.as_str(), whole.calls.len()), (prose, prose, 1), "{text}");
        assert!(whole.repairs.contains(&Repair::TextCall));
    }
}

#[test]
fn answer_that_begins_like_an_error_is_shown_whole() {
    for text in [
        "Error: 404 means that the page does not exist.",
        "Error",
        "Errors happen.",
        "Error: try this. Call: Bob",
        "Error: 5 means that the id is wrong. You could, for example, write Call: tasks_delete {\"id\": 3}",
    ] {
        let (shown, _, whole, _) = read(&pieces(text, &[3, 7, 30]));
        assert_eq!((shown.as_str(), whole.text.as_str(), whole.calls.len()), (text, text, 0));
    }
}

#[test]
fn quoted_call_stays_text_and_is_shown() {
    let text = "You could call it like this:\n{\"name\": \"tasks.delete\", \"arguments\": {\"id\": 1}}";
    let (shown, _, whole, _) = read(&pieces(text, &[3, 30, 50]));
    assert_eq!((shown.as_str(), whole.text.as_str(), whole.calls.len()), (text, text, 0));
}

#[test]
fn call_after_unended_thinking_is_ignored() {
    for opener in ["<think>", "[THINK]", "<seed:think>"] {
        let call = "{\"name\":\"use_skill\",\"arguments\":{\"skill\":\"tasks.create\"}}";
        let text = format!("Okay. {opener}Maybe I should add it.\n{call}");
        let (_, _, whole, _) = read(&pieces(&text, &[9, 30]));
        assert!(whole.calls.is_empty(), "{opener}: {whole:?}");
        let (_, _, whole, _) = read(&pieces(call, &[9, 30]));
        assert_eq!(whole.calls.len(), 1);
    }
}

#[test]
fn harmony_call_in_prose_of_another_model_is_ignored() {
    let call = "<|start|>assistant<|channel|>commentary to=functions.tasks.create<|message|>{\"title\":\"x\"}<|call|>";
    for text in [
        format!("Your note says: {call} and more"),
        format!("<think>hm</think>{call}"),
        format!("{call}That is how it works.\nIt creates a task."),
        format!("<|channel|>final<|message|>The note says:<|end|>{call}"),
    ] {
        let (_, _, whole, _) = read(std::slice::from_ref(&text));
        assert!(whole.calls.is_empty() && !whole.repairs.contains(&Repair::TextCall), "{text}: {whole:?}");
    }
    let text = format!("<|channel|>commentary<|message|>I add it.<|end|>{call}");
    let (_, _, whole, _) = read(&[text]);
    assert_eq!((whole.text.as_str(), whole.calls.len()), ("I add it.", 1));
}

#[test]
fn answer_that_begins_with_a_closing_tag_streams() {
    let text = "</div> ends a block.\nSo it is.";
    let (shown, _, _, before_end) = read(&pieces(text, &(0..200).collect::<Vec<_>>()));
    assert_eq!((shown.as_str(), before_end), (text, text.len()));
}

#[test]
fn repair_takes_linear_time() {
    // Quadratic work on any of these inputs would take minutes.
    for text in [
        "<",
        "[",
        "<|start|>",
        "<think></think>",
        "`</think>`",
        "<|channel|>analysis<|message|><|end|>",
        "a <think> [THINK] <thought> <reasoning> <seed:think> ◁think▷ ",
    ] {
        let long = text.repeat(2_000_000 / text.len());
        let (_, _, whole, _) = read(&[long]);
        assert!(whole.calls.is_empty());
    }
}

const LONG_HEADER: &str = concat!(
    "<|channel|>commentary to=functions.get_skill ",
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789",
    "<|message|>{}<|call|>",
);

fn fragment() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "Hello",
        " ",
        "\n",
        "I add it.\n",
        "<think>",
        "</think>",
        "<thinking>",
        "[THINK]",
        "[/THINK]",
        "```",
        "```json\n",
        "{\"name\": \"tasks.create\", \"arguments\": {\"title\": \"x\"}}",
        "{\"name\": \"Bob\"}",
        "<tool_call>",
        "</tool_call>",
        "<|im_end|>",
        "<|im_start|>",
        "<|im_start|>user",
        "</s>",
        "<|channel|>analysis<|message|>",
        "<|end|>",
        "<|start|>assistant",
        "<|channel|>final<|message|>",
        "get_skill {}",
        "[TOOL_CALLS]",
        "}",
        "ž",
        "<b>",
        "tasks.create",
        "<function=get_skill>",
        "</function>",
        "`",
        "`<think>`",
        "`</think>`",
        "<|start|>assistant<|channel|>commentary to=functions.get_skill<|message|>{}<|call|>",
        LONG_HEADER,
    ])
}

proptest! {
    #[test]
    fn repair_gives_the_same_result_for_every_split(
        fragments in prop::collection::vec(fragment(), 0..10),
        cuts in prop::collection::vec(0_usize..400, 0..30),
    ) {
        let text = fragments.concat();
        let (whole_shown, whole_thought, whole, _) = read(std::slice::from_ref(&text));
        let (shown, thought, split, _) = read(&pieces(&text, &cuts));
        prop_assert_eq!(&split, &whole);
        if !whole.ended_without_begin {
            prop_assert_eq!((shown, thought), (whole_shown, whole_thought));
        }
    }

    #[test]
    fn answer_that_mentions_tags_is_shown_whole(
        fragments in prop::collection::vec(
            prop::sample::select(vec!["go on ", "<think>", "<thinking>", "[THINK]", "<thought>", "<reasoning>", "ž"]), 0..10),
        cuts in prop::collection::vec(0_usize..400, 0..30),
    ) {
        let text = format!("Put {}", fragments.concat());
        let (shown, thought, whole, _) = read(&pieces(&text, &cuts));
        prop_assert_eq!((shown.as_str(), thought.as_str(), whole.text.as_str()), (text.as_str(), "", text.as_str()));
    }

    #[test]
    fn markers_are_never_shown(
        fragments in prop::collection::vec(fragment(), 0..10),
        cuts in prop::collection::vec(0_usize..400, 0..30),
    ) {
        // A begin marker without an end marker counts as mentioned by the answer.
        let text = format!("{}\n</think>[/THINK]", fragments.concat());
        prop_assume!(!text.contains('`'));
        let (shown, _, whole, _) = read(&pieces(&text, &cuts));
        for marker in ["<think>", "</think>", "[THINK]", "<|im_end|>", "<|im_start|>", "<|channel|>", "<|end|>"] {
            prop_assert!(!shown.contains(marker) && !whole.text.contains(marker), "{marker} in {shown:?}");
        }
    }
}
