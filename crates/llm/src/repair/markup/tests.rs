//! Thinking and tokens in a text, however it is cut.

use super::*;

/// Text and thoughts of a reply that came in pieces of so many characters.
fn read(text: &str, chars: usize, begins_thinking: bool) -> (String, String, Markup) {
    let mut markup = Markup::new(begins_thinking);
    let mut pieces = Vec::new();
    let all: Vec<char> = text.chars().collect();
    for piece in all.chunks(chars) {
        markup.push(&piece.iter().collect::<String>(), &mut pieces);
    }
    markup.finish(&mut pieces);
    let (mut said, mut thought) = (String::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::Text(text) => said.push_str(&text),
            Piece::Thought(text) => thought.push_str(&text),
            Piece::Unsaid => thought.push_str(&std::mem::take(&mut said)),
        }
    }
    (said, thought, markup)
}

#[test]
fn thinking_is_told_from_text_however_the_reply_is_cut() {
    for (text, said, thought) in [
        ("<think>hm</think>\n\nHi", "Hi", "hm"),
        ("hm\n</think>\n\nHi", "Hi", "hm\n"),
        ("<think>never ended", "", "never ended"),
        ("<thinking>a</thinking>b<think>c</think>d", "bd", "ac"),
        ("[THINK]a[/THINK]b", "b", "a"),
        ("<think>```cmd\ntasks.delete 1\n```</think>ok", "ok", "```cmd\ntasks.delete 1\n```"),
        ("```cmd\ntasks.delete 1\n</think>ok", "ok", "```cmd\ntasks.delete 1\n"),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|return|>", "b", "a"),
        ("Hi<|im_end|>", "Hi", ""),
        ("Hi<|im_end|>\n<|im_start|>user\nMore", "Hi\n", ""),
        ("Hi</s>", "Hi", ""),
        ("<s>old</s> new", "<s>old</s> new", ""),
        ("a < b and [x] <b>c</b>", "a < b and [x] <b>c</b>", ""),
        ("Write `<think>` and `</think>`.", "Write `<think>` and `</think>`.", ""),
        ("```\n<think>\nx\n</think>\n```\nso", "```\n<think>\nx\n</think>\n```\nso", ""),
        ("```\n<|im_start|>user\nhi<|im_end|>\n```\nso", "```\n<|im_start|>user\nhi<|im_end|>\n```\nso", ""),
        ("Hi <thi", "Hi ", ""),
    ] {
        for chars in 1..=text.chars().count() {
            let (s, t, _) = read(text, chars, false);
            assert_eq!((s.as_str(), t.as_str()), (said, thought), "{text:?} in pieces of {chars}");
        }
    }
}

#[test]
fn text_of_a_template_that_begins_thinking_is_held_until_thinking_ends() {
    let (said, thought, markup) = read("hm</think>Hi", 2, true);
    assert_eq!((said.as_str(), thought.as_str(), markup.ended_unbegun), ("Hi", "hm", true));
    let (said, thought, _) = read("just Hi", 2, true);
    assert_eq!((said.as_str(), thought.as_str()), ("just Hi", ""));
}

#[test]
fn harmony_calls_are_found() {
    let text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.get_skill \
                <|constrain|>json<|message|>{\"domain\":\"tasks\"}<|call|>";
    for chars in [1, 7, 1_000] {
        let (said, _, markup) = read(text, chars, false);
        assert_eq!(said, "");
        assert_eq!(markup.calls, [("functions.get_skill".to_owned(), "{\"domain\":\"tasks\"}".to_owned())]);
    }
}
