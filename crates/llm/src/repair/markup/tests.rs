//! Tests for thinking and tokens in a text, for every way to split it.

use super::*;

/// Reads a reply that arrives in pieces of `chars` characters; returns its text and its thinking.
fn read(text: &str, chars: usize, begins_thinking: bool) -> (String, String, Markup) {
    let mut markup = Markup::new(begins_thinking);
    let mut pieces = Vec::new();
    let all: Vec<char> = text.chars().collect();
    for piece in all.chunks(chars) {
        markup.push(&piece.iter().collect::<String>(), &mut pieces);
    }
    markup.finish(false, &mut pieces);
    let (mut sent, mut thought) = (String::new(), String::new());
    for piece in pieces {
        match piece {
            Piece::Text(text) => sent.push_str(&text),
            Piece::Thought(text) => thought.push_str(&text),
            Piece::AllWasThinking => thought.push_str(&std::mem::take(&mut sent)),
        }
    }
    (sent, thought, markup)
}

#[test]
fn markup_separates_thinking_from_text_for_every_split() {
    for (text, sent, thought) in [
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
        ("Models write `<think>hm</think>` first.", "Models write `<think>hm</think>` first.", ""),
        ("``<think>`` and ``</think>``", "``<think>`` and ``</think>``", ""),
        ("<think>It ends with `</think>`, so</think>Hi", "Hi", "It ends with `</think>`, so"),
        ("<think>I call `f`</think>Hi", "Hi", "I call `f`"),
        ("The `<think>` tag, then.</think>Hi", "Hi", "The `<think>` tag, then."),
        ("Say `x`<|im_end|>", "Say `x`", ""),
        ("Put <reasoning> before it and go on.", "Put <reasoning> before it and go on.", ""),
        ("Put <thinking> or [THINK] or <think>.\nSo.", "Put <thinking> or [THINK] or <think>.\nSo.", ""),
        ("Put <thought> there.<|im_end|>", "Put <thought> there.", ""),
        ("`a` <think> `b` or `<think>`.", "`a` <think> `b` or `<think>`.", ""),
        ("Put <think> there.\n<think>hm</think>ok", "Put ok", " there.\n<think>hm"),
        ("Put [THINK] there.\n<think>hm</think>ok", "Put [THINK] there.\nok", "hm"),
        ("Put <thought> there.\n<think>never ended", "Put <thought> there.\n", "never ended"),
    ] {
        for chars in 1..=text.chars().count() {
            let (s, t, _) = read(text, chars, false);
            assert_eq!((s.as_str(), t.as_str()), (sent, thought), "{text:?} in pieces of {chars}");
        }
    }
}

#[test]
fn markup_withholds_text_until_thinking_of_template_ends() {
    let (sent, thought, markup) = read("hm</think>Hi", 2, true);
    assert_eq!((sent.as_str(), thought.as_str(), markup.ended_without_begin), ("Hi", "hm", true));
    let (sent, thought, _) = read("just Hi", 2, true);
    assert_eq!((sent.as_str(), thought.as_str()), ("just Hi", ""));
}

#[test]
fn markup_withholds_thinking_that_mentions_its_marker_until_it_ends() {
    for (text, sent, thought) in [
        ("They ask about `<think>`.\nI say hello.</think>Hi", "Hi", "They ask about `<think>`.\nI say hello."),
        ("About <think> then.</think>Hi", "Hi", "About <think> then."),
        ("```xml\n<think>\n```\nSo</think>Hi", "Hi", "```xml\n<think>\n```\nSo"),
        ("`<think>` ends with `</think>`, so</think>Hi", "Hi", "`<think>` ends with `</think>`, so"),
        ("```cmd\ntasks.delete 1\n</think>Hi", "Hi", "```cmd\ntasks.delete 1\n"),
        ("I call `f`</think>Hi", "Hi", "I call `f`"),
        ("Sure. <think>never ended", "Sure. ", "<think>never ended"),
        ("<think>hm</think>Hi", "Hi", "hm"),
    ] {
        for chars in 1..=text.chars().count() {
            let (s, t, _) = read(text, chars, true);
            assert_eq!((s.as_str(), t.as_str()), (sent, thought), "{text:?} in pieces of {chars}");
        }
    }
}

#[test]
fn markup_shows_withheld_text_at_end_and_takes_cut_reply_for_thinking() {
    let (_, _, markup) = read("just Hi", 2, true);
    assert!(markup.withheld_needlessly);
    let (_, _, markup) = read("hm</think>Hi", 2, true);
    assert!(!markup.withheld_needlessly);
    let mut markup = Markup::new(true);
    let mut pieces = Vec::new();
    markup.push("I think and th", &mut pieces);
    markup.finish(true, &mut pieces);
    assert_eq!(pieces, [Piece::Thought("I think and th".to_owned())]);
    assert!(!markup.withheld_needlessly, "a cut reply may still be thinking");
}

#[test]
fn markup_draws_no_conclusion_about_template_from_reply_without_text() {
    for text in ["", " \n"] {
        let (_, _, markup) = read(text, 1, true);
        assert!(!markup.withheld_needlessly, "{text:?}");
    }
}

#[test]
fn markup_takes_text_after_tag_for_thinking_in_cut_reply() {
    let mut markup = Markup::new(false);
    let mut pieces = Vec::new();
    markup.push("Sure. <think>I think and th", &mut pieces);
    markup.finish(true, &mut pieces);
    assert_eq!(pieces, [Piece::Text("Sure. ".to_owned()), Piece::Thought("I think and th".to_owned())]);
    assert!(markup.took_thinking);
}

#[test]
fn markup_finds_harmony_calls() {
    let text = "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.get_skill \
                <|constrain|>json<|message|>{\"domain\":\"tasks\"}<|call|>";
    for chars in [1, 7, 1_000] {
        let (sent, _, markup) = read(text, chars, false);
        assert_eq!(sent, "");
        assert_eq!(markup.calls(), [("functions.get_skill".to_owned(), "{\"domain\":\"tasks\"}".to_owned())]);
        // Servers remove the last token, because it is the model's stop token.
        let (sent, _, markup) = read(text.trim_end_matches("<|call|>"), chars, false);
        assert_eq!((sent.as_str(), markup.calls().len()), ("", 1));
    }
}
