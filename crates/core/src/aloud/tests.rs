//! What is said of a text, whole and in pieces.

use proptest::prelude::*;

use super::*;

fn spoken(text: &str) -> String {
    VoiceFormat { sentences_max: 0, ..VoiceFormat::default() }.spoken(text).0
}

#[test]
fn markup_is_left_out() {
    for (text, want) in [
        ("It is **very** _nice_, `really`.", "It is very nice, really."),
        ("# Today\n\nYou have two tasks:\n- Buy *milk*\n- Call Ann", "Today. You have two tasks: Buy milk, Call Ann"),
        ("1. One\n2. Two\n10) Ten", "1. One, 2. Two, 10) Ten"),
        ("- [ ] Milk\n- [x] Eggs\n\nThat is all.", "Milk, Eggs. That is all."),
        ("> Quoted\n> text", "Quoted. text"),
        ("Run:\n```sh\nls\n```\nDone.", "Run: ls. Done."),
        ("One\n***\nTwo", "One. Two"),
        ("~~old~~ new", "old new"),
        ("2*3 is six, snake_case stays, -5 degrees, #7 too", "2*3 is six, snake_case stays, -5 degrees, #7 too"),
        ("* one\n* two", "one, two"),
        ("5 * 3 is 15", "5 * 3 is 15"),
        ("42. That is six times seven.", "42. That is six times seven."),
        ("3. Oktober um 9 Uhr.", "3. Oktober um 9 Uhr."),
        ("", ""),
        ("  \n ", ""),
    ] {
        assert_eq!(spoken(text), want, "{text:?}");
    }
}

#[test]
fn tables_become_lists_of_their_cells() {
    for (text, want) in [
        ("| Day | Task |\n|-----|:----:|\n| Mon | Milk |\n", "Day, Task. Mon, Milk"),
        ("|a|b|\n|-|-|\n|1|2|\nEnd.", "a, b. 1, 2. End."),
        ("Mon | Milk\n--- | ---\nTue | Eggs", "Mon, Milk. Tue, Eggs"),
    ] {
        assert_eq!(spoken(text), want, "{text:?}");
    }
}

#[test]
fn emoji_and_addresses_are_not_said() {
    for (text, want) in [
        ("Done ✅ great 👍🏽!", "Done great !"),
        ("👨‍👩‍👧 family", "family"),
        ("👍", "Yes."),
        ("❌", "No."),
        ("🎉", "Okay."),
        ("See https://example.org/a?b=c_d.", "See a link."),
        ("See <https://example.org> or www.example.org, now", "See a link or a link, now"),
        ("Read [the whole page](https://example.org/x_y) today", "Read the whole page today"),
        ("![a cat](cat.png) sits", "a cat sits"),
        ("[not a link] and [x]", "[not a link] and [x]"),
        ("an [open bracket", "an [open bracket"),
    ] {
        assert_eq!(spoken(text), want, "{text:?}");
    }
}

#[test]
fn sentences_beyond_the_limit_are_left_out_with_a_notice() {
    let format = VoiceFormat { plain: true, sentences_max: 2 };
    let (text, changes) = format.spoken("One, e.g. this. Two! Three? Four.");
    assert_eq!(
        (text.as_str(), changes),
        ("One, e.g. this. Two! There is more; ask me to go on.", vec![VoiceChange::Sentences])
    );
    assert_eq!(format.spoken("One. Two.").0, "One. Two.");
    assert_eq!(format.spoken("One\nTwo\nThree").0, "One. Two. There is more; ask me to go on.");
    assert_eq!(
        format.spoken("Dr. A. Smith comes on 3. May at 5 p.m. today. Yes.").0,
        "Dr. A. Smith comes on 3. May at 5 p.m. today. Yes."
    );
    assert_eq!(format.spoken("一。二！三。").0, "一。二！ There is more; ask me to go on.");
}

#[test]
fn changes_are_named_once_and_plain_text_has_none() {
    let (_, changes) = VoiceFormat::default().spoken("**a** *b* 👍👍 | c\n| d |");
    assert_eq!(changes, [VoiceChange::Markup, VoiceChange::Emoji, VoiceChange::Table]);
    let text = "It is sunny, 21 degrees. Take a hat!";
    assert_eq!(VoiceFormat::default().spoken(text), (text.to_owned(), Vec::new()));
    let format = VoiceFormat { plain: false, sentences_max: 1 };
    assert_eq!(format.spoken("**One**.\nTwo.").0, "**One**. There is more; ask me to go on.");
    assert!(!VoiceFormat { plain: false, sentences_max: 0 }.is_on());
}

#[test]
fn undecided_text_is_bounded() {
    for hostile in ["[", "-", "1", "```", "a", "|"] {
        let mut aloud = Aloud::new(VoiceFormat::default());
        for _ in 0..5_000 {
            aloud.push(hostile);
            assert!(aloud.pending.len() <= 2 * LOOK_BYTES_MAX, "{hostile}");
        }
    }
}

#[test]
fn pieces_of_long_words_and_links_are_the_whole_text() {
    let long = |prefix: &str, bytes: usize| format!("{prefix}{}", "é".repeat(bytes / 2));
    for text in [
        format!("Read [x]({}) now.", long("https://x.y/", 600)),
        format!("Read [x]({}) now.", long("https://x.y/", 9_000)),
        format!("Read [{}](https://x.y) now.", long("", 9_000)),
        format!("See {} now.", long("https://x.y/", 9_000)),
        format!("See {} now.", long("https://x.y/", 600)),
    ] {
        let (whole, _) = VoiceFormat::default().spoken(&text);
        for size in [1, 7, 1_000] {
            let mut aloud = Aloud::new(VoiceFormat::default());
            let chars: Vec<char> = text.chars().collect();
            let mut pieces: String =
                chars.chunks(size).map(|piece| aloud.push(&piece.iter().collect::<String>())).collect();
            pieces.push_str(&aloud.finish());
            assert!(pieces == whole, "{} bytes in pieces of {size}", text.len());
        }
    }
    assert_eq!(spoken(&format!("Read [x]({}) now.", long("https://x.y/", 600))), "Read x now.");
}

proptest! {
    #[test]
    fn pieces_together_are_the_whole_text_however_it_is_split(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "**", "_", "a", "b.", " ", "\n", "- ", "1. ", "| ", "|", "---", "```", "[", "](", ")", "#", "# ", "👍", "https://x.y ",
                "你", "。", "!", "> ", "word", "2*3", "\t", "é",
            ]),
            0..40,
        ),
        size in 1_usize..7,
        sentences_max in 0_u32..4,
    ) {
        let text = parts.concat();
        let format = VoiceFormat { plain: true, sentences_max };
        let mut aloud = Aloud::new(format);
        let chars: Vec<char> = text.chars().collect();
        let mut pieces: String = chars.chunks(size).map(|piece| aloud.push(&piece.iter().collect::<String>())).collect();
        pieces.push_str(&aloud.finish());
        let whole = format.spoken(&text).0;
        prop_assert!(whole == pieces || pieces.is_empty() && [NOTHING, "Yes."].contains(&&*whole), "{text:?}: {whole:?}, {pieces:?}");
        let again = format.without_limit().spoken(&whole).0;
        prop_assert!(!again.contains("**") && !again.contains('👍'));
    }
}
